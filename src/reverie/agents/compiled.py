"""Dreamer's parts as compiled functions. Each is small enough to compile in seconds, and is compiled once."""

from __future__ import annotations

from typing import Any

import torch

from ..nn.optim import Stepper
from ..world.model import WorldModel
from .behavior import Behavior


def hasten(world: WorldModel, behavior: Behavior, *steppers: Stepper) -> None:
    """Replace the functions that an update spends its time in by compiled ones that do the same."""
    for owner, names in (
        (world, ("encoded", "predicted")),
        (world.rssm, ("filter",)),
        (behavior, ("advance", "foresee", "judged", "replay_loss")),
        *((stepper, ("step",)) for stepper in steppers),
    ):
        for name in names:
            _replace(owner, name)


def _replace(owner: Any, name: str) -> None:
    setattr(owner, name, torch.compile(getattr(owner, name), dynamic=False))
