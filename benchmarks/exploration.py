"""Plain Dreamer beside Plan2Explore with the same budget, several seeds of each, as JSON and as a picture.

    python benchmarks/exploration.py OUT --configs corridor [--seeds 5] [--jobs 10] [--minutes 9] [--option VALUE ...]
    python benchmarks/exploration.py OUT --draw

Words after these go to every run; `--explore.…` and `--explore_until` to those of Plan2Explore alone. Runs go side by
side, each with one thread, in OUT/; those that are not over after so many minutes are stopped and count as far as they
came. The figures are in OUT.json, written anew after each run, and `--draw` makes OUT.png of their evaluations and
OUT-found.png of when training was first paid (needs matplotlib).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from sides import COLOURS, Found, as_they_come, logged, picture, trained

SIDES: dict[str, list[str]] = {"Dreamer": [], "Plan2Explore": ["plan2explore"]}


def main() -> None:
    """Run all, or draw what was run."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("--configs", nargs="+", default=["corridor"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--nothing", type=float, default=0.0, help="the return of episodes that find no reward")
    parser.add_argument("--draw", action="store_true")
    given, words = parser.parse_known_args()
    path = Path(f"{given.out}.json")
    if given.draw:
        report = json.loads(path.read_text())
        draw(report, Path(f"{given.out}.png"))
        draw_finds(report, Path(f"{given.out}-found.png"))
        return
    end = time.monotonic() + 60 * given.minutes if given.minutes else None

    def job(side: str, seed: int) -> Found:
        folder, own = given.out / f"{side.lower()}-{seed}", words if SIDES[side] else without_exploring(words)
        own = ["--configs", *given.configs, *SIDES[side], "--seed", str(seed), *own]
        return {"side": side, "seed": seed} | trained(folder, own, end) | finds(folder, given.nothing)

    jobs = [lambda side=side, seed=seed: job(side, seed) for seed in range(given.seeds) for side in SIDES]
    runs: dict[str, list[Found]] = {side: [] for side in SIDES}
    for found in as_they_come(jobs, given.jobs):
        runs[found["side"]].append(found)
        print({name: value for name, value in found.items() if name != "curve"}, flush=True)
        report = {"command": sys.argv[1:], "title": titled(given.configs, words), "runs": runs}
        report["summary"] = {side: summary(each) for side, each in runs.items()}
        path.write_text(json.dumps(report, indent=1))
    print(json.dumps(report["summary"], indent=1))


def titled(configs: list[str], words: list[str]) -> str:
    """What was learned: the task where one is given, else the presets."""
    return words[words.index("--task") + 1] if "--task" in words else " ".join(configs)


def without_exploring(words: list[str]) -> list[str]:
    """The words less the options of exploring, each of which has one value."""
    kept, rest = [], iter(words)
    for word in rest:
        if word.startswith(("--explore.", "--explore_until")):
            next(rest)
        else:
            kept.append(word)
    return kept


def finds(folder: Path, nothing: float) -> Found:
    """When training first saw a reward, and how far it came where that is told."""
    lines = logged(folder)
    seen = [line["step"] for line in lines if (line.get("episode/return") or nothing) > nothing]
    furthest = [line["episode/furthest"] for line in lines if "episode/furthest" in line]
    return {"first_reward": seen[0] if seen else None} | ({"furthest": max(furthest)} if furthest else {})


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
    with picture(path) as axis:
        for side, colour in zip(SIDES, COLOURS):
            runs = report["runs"].get(side, [])
            for each in (each for each in runs if each["curve"]):
                axis.plot(*zip(*each["curve"]), "o-", ms=3, lw=1, alpha=0.7, color=colour)
            seen = sum(each["first_reward"] is not None for each in runs)
            axis.plot([], [], "o-", color=colour, label=f"{side}: {seen} of {len(runs)} found it")
        axis.set_title(report["title"])


def draw_finds(report: dict[str, Any], path: Path) -> None:
    """Every run as a bar as long as its training, with a dot where an episode of training was first paid."""
    place = 0
    with picture(path, "runs, one for each seed") as axis:
        for side, colour in zip(SIDES, COLOURS):
            for each in sorted(report["runs"].get(side, []), key=lambda each: each["seed"]):
                axis.plot([0, each["steps"]], [place, place], "-", lw=4, alpha=0.35, color=colour)
                if each["first_reward"] is not None:
                    axis.plot([each["first_reward"]], [place], "o", ms=7, color=colour)
                place -= 1
            axis.plot([], [], "o-", color=colour, label=f"{side}: first paid at the dot")
        axis.set_yticks([])
        axis.set_title(report["title"])


if __name__ == "__main__":
    main()
