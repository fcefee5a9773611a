"""Reverie's own small environments."""

from __future__ import annotations

import gymnasium

from ...config.schema import EnvConfig
from .. import pick, steer, toy
from ..corridor import Corridor
from ..registry import Suite

TOYS: dict[str, type[toy.Toy]] = {
    "count": toy.Count,
    "timeout": toy.Timeout,
    "catch": toy.Catch,
    "catch_small": toy.SmallCatch,
    "hybrid": toy.Hybrid,
    "pick": pick.Pick,
    "memory": toy.Memory,
    "recall": toy.Recall,
    "reach": toy.Reach,
    "steer": steer.Steer,
    "steer_mixed": steer.MixedSteer,
    "multi": toy.Multi,
    "crash": toy.Crash,
    "corridor": Corridor,
}


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """The toy of that name."""
    return TOYS[name](render_mode="rgb_array")


SUITE = Suite(
    name="toy",
    about="small environments for tests and first tries",
    make=make,
    tasks=lambda: list(TOYS),
    example="toy_catch",
)
