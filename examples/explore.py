"""Exploring: a corridor of doors that chance hardly ever gets through, and an agent that is paid for finding out.

    python examples/explore.py [steps]

Behind nine doors, each with three handles of which one opens it and the others lead back, is the only reward there is.
Whoever follows rewards has nothing to follow. Plan2Explore has: an ensemble of small networks predicts what comes next,
and where its members disagree, there is something to learn. Its explorer learns, in dreams, to go there.

The whole corridor of 15 doors is `reverie train --configs corridor plan2explore`; docs/algorithms.md explains why
disagreement is what is paid for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

from gymnasium.spaces import Discrete

import reverie
from reverie.envs.corridor import Corridor


class ShortCorridor(Corridor):
    """The first nine doors of the corridor, with the room right behind them."""

    HANDLES: ClassVar[tuple[int, ...]] = Corridor.HANDLES[:9]
    LIMIT: ClassVar[int] = 24
    observation_space = Discrete(10)


SMALL = {
    "task": "explore:ShortCorridor", "envs__backend": "serial", "run__eval_every": 0, "run__eval_at_end": False,
    "world__deter": 32, "world__hidden": 32, "world__units": 32, "behavior__units": 32, "behavior__horizon": 6,
    "explore__members": 5, "replay__batch": 16, "replay__ratio": 96, "replay__warmup": 128, "optim__model__warmup": 20,
    "log__every": 100,
}  # fmt: skip
"""A world of ten places needs no large model, and a minute has no room for one."""


def main(steps: int = 1_600) -> None:
    """Walk at random, then explore, and compare how far both come."""
    random = reverie.train(reverie.configure("defaults", agent__name="random", run__steps=steps, **SMALL), quiet=True)
    explorer = reverie.train(reverie.configure("corridor", "plan2explore", run__steps=steps, **SMALL), quiet=True)

    # A first while goes by until the model has seen enough for its members to agree on the doors near the beginning.
    # Then these are boring, and the explorer goes on to the next.
    print("furthest door of an episode, mean of a sixth of the run each")
    for name, outcome in (("at random", random), ("explorer", explorer)):
        print(f"  {name:10}", *(f"{door:5.1f}" for door in furthest(outcome.logdir, steps)))

    # Both numbers are of rows that were replayed or dreamt. As long as dreams promise more disagreement than what is
    # already known, there is something left to find.
    print("\n   step  disagreement: of what is known, of dreams")
    for line in [line for line in lines(explorer.logdir) if "explore/disagreement" in line][::4]:
        known, dreamt = line["explore/disagreement"], line["explore/imagined_disagreement"]
        print(f"{line['step']:7,}  {known:.4f}  {dreamt:.4f}")


def lines(folder: Path) -> list[dict[str, float]]:
    """What a run has logged."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def furthest(folder: Path, steps: int) -> list[float]:
    """How far episodes came, in each sixth of a run in which one ended."""
    parts: list[list[float]] = [[] for _ in range(6)]
    for line in lines(folder):
        if "episode/furthest" in line:
            parts[min(5, int(6 * line["step"] / steps))].append(line["episode/furthest"])
    return [sum(part) / len(part) for part in parts if part]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
