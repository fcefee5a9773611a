"""Plain Dreamer beside Plan2Explore with the same budget, several seeds of each, as JSON and as a picture.

    python benchmarks/exploration.py OUT --configs corridor [--seeds 5] [--jobs 10] [--option VALUE ...]

Words after these go to every run; `--explore.…` and `--explore_until` to those of Plan2Explore alone. Runs go side by
side, each with one thread, in OUT/; the figures are in OUT.json and OUT.png (needs matplotlib).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SIDES = {"Dreamer": [], "Plan2Explore": ["plan2explore"]}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("--configs", nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given, words = parser.parse_known_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        waiting = {
            (side, seed): pool.submit(run, given.out / f"{side.lower()}-{seed}", given.configs, side, seed, words)
            for seed in range(given.seeds)
            for side in SIDES
        }
        found = {side: [waiting[side, seed].result() for seed in range(given.seeds)] for side in SIDES}
    report = {"command": sys.argv[1:], "runs": found, "summary": {side: summary(runs) for side, runs in found.items()}}
    given.out.with_suffix(".json").write_text(json.dumps(report, indent=1))
    draw(found, given.out.with_suffix(".png"), " ".join(given.configs))
    print(json.dumps(report["summary"], indent=1))


def run(folder: Path, configs: list[str], side: str, seed: int, words: list[str]) -> dict[str, Any]:
    """Train once, in a process of its own, and read what was logged."""
    own = words if side == "Plan2Explore" else without_exploring(words)
    command = [sys.executable, "-m", "reverie", "train", "--configs", *configs, *SIDES[side], "--seed", str(seed)]
    command += ["--logdir", str(folder), "--run.threads", "1", "--log.tensorboard", "False", *own]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    result = {"seed": seed, "seconds": round(time.perf_counter() - start), **figures(folder)}
    print(side, {name: value for name, value in result.items() if name != "curve"}, flush=True)
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
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    curve = [(line["step"], line["eval/mean_return"]) for line in lines if "eval/mean_return" in line]
    seen = [line["step"] for line in lines if (line.get("episode/return") or 0) > 0]
    furthest = [line["episode/furthest"] for line in lines if "episode/furthest" in line]
    found = {"first_reward": seen[0] if seen else None, "best": max(value for _, value in curve), "curve": curve}
    return found | ({"furthest": max(furthest)} if furthest else {})


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """How many runs ever saw a reward, and what they came to."""
    return {
        "found": sum(run["first_reward"] is not None for run in runs),
        "of": len(runs),
        "first_reward": [run["first_reward"] for run in runs],
        "best": [run["best"] for run in runs],
    }


def draw(found: dict[str, list[dict[str, Any]]], path: Path, title: str) -> None:
    """Every run as a thin line, and its best evaluation as a dot at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.2, 3.4))
    for (side, runs), colour in zip(found.items(), ("#0072b2", "#e69f00")):
        for each in runs:
            axis.plot(*zip(*each["curve"]), "o-", ms=3, lw=1, alpha=0.7, color=colour)
        seen = sum(each["first_reward"] is not None for each in runs)
        axis.plot([], [], "o-", color=colour, label=f"{side}: {seen} of {len(runs)} found it")
    axis.set_title(title)
    axis.set_xlabel("agent steps")
    axis.set_ylabel("mean return of evaluations")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
