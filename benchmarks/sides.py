"""Kinds of runs side by side, several seeds of each: evaluations as JSON and as a picture, and how far they overlap.

    python benchmarks/sides.py OUT --side 'plain: --run.fast off' --side 'graph: --run.fast graph'
                               [--seeds 3] [--jobs 6] [--minutes 9] [--option VALUE ...]
    python benchmarks/sides.py OUT --draw

A side is a name and the words of `reverie train` that it has for itself; words after these go to every run. Runs that
are not over after so many minutes are stopped and count as far as they came. The figures are in OUT.json, written anew
after each run, and `--draw` makes OUT.png of them (needs matplotlib): a line for the mean of the seeds, a band from the
worst to the best. Two sides overlap at an evaluation where these bands do.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

Found = dict[str, Any]
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")


def trained(folder: Path, words: list[str], end: float | None) -> Found:
    """What a run came to, in a process of its own with one thread, stopped at a moment if it is not over by then."""
    command = [sys.executable, "-m", "reverie", "train", *words, "--logdir", str(folder)]
    command += ["--run.threads", "1", "--log.tensorboard", "False"]
    start, stopped = time.perf_counter(), False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"})
        try:
            process.wait(max(0.0, end - time.monotonic()) if end else None)
        except subprocess.TimeoutExpired:
            stopped = True
            process.send_signal(signal.SIGINT)
            process.wait()
    if process.returncode and not stopped:
        sys.exit(f"{' '.join(command)}\n{Path(log.name).read_text()[-2000:]}")
    lines = logged(folder)
    curve = [(line["step"], line["eval/mean_return"]) for line in lines if "eval/mean_return" in line]
    found: Found = {"seconds": round(time.perf_counter() - start), "steps": lines[-1]["step"] if lines else 0}
    return found | {"best": max((value for _, value in curve), default=None), "curve": curve}


def logged(folder: Path) -> list[Found]:
    """The lines of a run's log."""
    log = folder / "metrics.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def as_they_come(jobs: list[Any], at_once: int) -> Iterator[Any]:
    """What calls without arguments return, so many of them made at once."""
    with ThreadPoolExecutor(at_once) as pool:
        waiting: list[Future[Any]] = [pool.submit(job) for job in jobs]
        for future in as_completed(waiting):
            yield future.result()


def overlaps(runs: dict[str, list[Found]]) -> dict[str, Found]:
    """For each two sides, at how many of the evaluations that both have the ranges of their seeds meet."""
    found: dict[str, Found] = {}
    for left, right in combinations(runs, 2):
        one, other = ranges(runs[left]), ranges(runs[right])
        steps = sorted(one.keys() & other.keys())
        meets = [one[step][0] <= other[step][2] and other[step][0] <= one[step][2] for step in steps]
        found[f"{left}, {right}"] = {"evaluations": len(steps), "overlap": sum(meets)}
    return found


def ranges(runs: list[Found]) -> dict[int, tuple[float, float, float]]:
    """The worst, the mean and the best of the seeds at each step that all of them were evaluated at, nearly.

    Rounds do not end at round numbers, so a run's evaluations are counted by their order, at the first run's steps.
    """
    curves = [each["curve"] for each in runs if each["curve"]]
    return {
        rounded(points[0][0]): (min(values), fmean(values), max(values))
        for points in zip(*curves)
        for values in [[value for _, value in points]]
    }


def rounded(step: int) -> int:
    """A step to two digits."""
    return int(float(f"{step:.1e}"))


def report_of(runs: dict[str, list[Found]]) -> Found:
    """The means of all evaluations of each run, their best ones, and how far sides overlap."""
    summary = {
        side: {
            "mean": [fmean(value for _, value in each["curve"]) for each in found if each["curve"]],
            "best": [each["best"] for each in found],
            "seconds": [each["seconds"] for each in found],
            "steps": [each["steps"] for each in found],
        }
        for side, found in runs.items()
    }
    return {"summary": summary, "overlaps": overlaps(runs), "runs": runs}


def main() -> None:
    """Run all, or draw what was run."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--side", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--draw", action="store_true")
    given, words = parser.parse_known_args()
    path = Path(f"{given.out}.json")
    if given.draw:
        draw(json.loads(path.read_text()), Path(f"{given.out}.png"))
        return
    sides = {name.strip(): own.split() for name, _, own in (side.partition(":") for side in given.side)}
    end = time.monotonic() + 60 * given.minutes if given.minutes else None

    def job(side: str, seed: int) -> Found:
        own = [*words, *sides[side], "--seed", str(seed)]
        return {"side": side, "seed": seed} | trained(given.out / f"{side}-{seed}".replace(" ", "-"), own, end)

    jobs = [lambda side=side, seed=seed: job(side, seed) for seed in range(given.seeds) for side in sides]
    runs: dict[str, list[Found]] = {side: [] for side in sides}
    for found in as_they_come(jobs, given.jobs):
        runs[found["side"]].append(found)
        print({name: value for name, value in found.items() if name != "curve"}, flush=True)
        path.write_text(json.dumps({"command": sys.argv[1:]} | report_of(runs), indent=1))
    report = report_of(runs)
    print(json.dumps({name: report[name] for name in ("summary", "overlaps")}, indent=1))


def draw(report: Found, path: Path) -> None:
    """The mean of each side's seeds as a line, in a band from the worst of them to the best."""
    with picture(path) as axis:
        for (side, runs), colour in zip(report["runs"].items(), COLOURS):
            band = ranges(runs)
            worst, mean, best = zip(*band.values()) if band else ((), (), ())
            axis.plot(list(band), mean, "o-", ms=3, color=colour, label=f"{side}, {len(runs)} seeds")
            axis.fill_between(list(band), worst, best, color=colour, alpha=0.2, lw=0)


@contextmanager
def picture(path: Path, upwards: str = "mean return of evaluations") -> Iterator[Any]:
    """Axes to draw on, with steps to the right, written to a file afterwards."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.2, 3.4))
    yield axis
    axis.set_xlabel("agent steps")
    axis.set_ylabel(upwards)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
