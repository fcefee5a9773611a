"""Plain Dreamer beside Plan2Explore with the same budget, several seeds of each, as JSON and as a picture.

    python benchmarks/exploration.py OUT --configs corridor [--seeds 5] [--jobs 10] [--minutes 9] [--option VALUE ...]
    python benchmarks/exploration.py OUT --draw

Words after these go to every run; `--explore.…` and `--explore_until` to those of Plan2Explore alone. Runs go side by
side, each with one thread, in OUT/; those that are not over after so many minutes are stopped and count as far as they
came. The figures are in OUT.json, written anew after each run, and `--draw` makes OUT.png of them (needs matplotlib).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

SIDES = {"Dreamer": [], "Plan2Explore": ["plan2explore"]}


def main() -> None:
    """Run all, or draw what was run."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("--configs", nargs="+", default=["corridor"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--draw", action="store_true")
    given, words = parser.parse_known_args()
    path = Path(f"{given.out}.json")
    if given.draw:
        draw(json.loads(path.read_text()), Path(f"{given.out}.png"))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * given.minutes if given.minutes else None
    report: dict[str, Any] = {"command": sys.argv[1:], "title": " ".join(given.configs), "runs": {}}
    with ThreadPoolExecutor(given.jobs) as pool:
        waiting = [pool.submit(run, given.out, given.configs, side, seed, words, end)
                   for seed in range(given.seeds) for side in SIDES]  # fmt: skip
        for future in as_completed(waiting):
            found = future.result()
            report["runs"].setdefault(found["side"], []).append(found)
            report["summary"] = {side: summary(runs) for side, runs in report["runs"].items()}
            path.write_text(json.dumps(report, indent=1))
    print(json.dumps(report["summary"], indent=1))


def run(out: Path, configs: list[str], side: str, seed: int, words: list[str], end: float | None) -> dict[str, Any]:
    """Train once, in a process of its own, and read what was logged."""
    folder, own = out / f"{side.lower()}-{seed}", words if side == "Plan2Explore" else without_exploring(words)
    command = [sys.executable, "-m", "reverie", "train", "--configs", *configs, *SIDES[side], "--seed", str(seed)]
    command += ["--logdir", str(folder), "--run.threads", "1", "--log.tensorboard", "False", *own]
    start, stopped = time.perf_counter(), False
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
    result = {"side": side, "seed": seed, "seconds": round(time.perf_counter() - start), **figures(folder)}
    print({name: value for name, value in result.items() if name != "curve"}, flush=True)
    return result


def without_exploring(words: list[str]) -> list[str]:
    """The words less the options of exploring, each of which has one value."""
    kept, rest = [], iter(words)
    for word in rest:
        if word.startswith(("--explore.", "--explore_until")):
            next(rest)
        else:
            kept.append(word)
    return kept


def figures(folder: Path) -> dict[str, Any]:
    """The evaluations of a run, and when training first saw a reward."""
    log = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    curve = [(line["step"], line["eval/mean_return"]) for line in lines if "eval/mean_return" in line]
    seen = [line["step"] for line in lines if (line.get("episode/return") or 0) > 0]
    furthest = [line["episode/furthest"] for line in lines if "episode/furthest" in line]
    found = {"first_reward": seen[0] if seen else None, "best": max((value for _, value in curve), default=None)}
    found |= {"steps": lines[-1]["step"] if lines else 0, "curve": curve}
    return found | ({"furthest": max(furthest)} if furthest else {})


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """How many runs ever saw a reward, and what they came to."""
    return {
        "found": sum(run["first_reward"] is not None for run in runs),
        "of": len(runs),
        "first_reward": [run["first_reward"] for run in runs],
        "best": [run["best"] for run in runs],
    }


def draw(report: dict[str, Any], path: Path) -> None:
    """Every run as a thin line, with its evaluations as dots."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.2, 3.4))
    for side, colour in zip(SIDES, ("#0072b2", "#e69f00")):
        runs = report["runs"].get(side, [])
        for each in (each for each in runs if each["curve"]):
            axis.plot(*zip(*each["curve"]), "o-", ms=3, lw=1, alpha=0.7, color=colour)
        seen = sum(each["first_reward"] is not None for each in runs)
        axis.plot([], [], "o-", color=colour, label=f"{side}: {seen} of {len(runs)} found it")
    axis.set_title(report["title"])
    axis.set_xlabel("agent steps")
    axis.set_ylabel("mean return of evaluations")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
