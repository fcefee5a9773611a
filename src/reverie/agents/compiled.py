"""Dreamer's parts as compiled functions. Each is small enough to compile in seconds, and is compiled once."""

from __future__ import annotations

from typing import Any

import torch

from ..nn.optim import Stepper
from ..world.images import PoolEncoder
from ..world.model import WorldModel
from ..world.scan import Scan
from .behavior import Behavior


def hasten(world: WorldModel, behavior: Behavior, *steppers: Stepper) -> None:
    """Replace the functions that an update spends its time in by compiled ones that do the same."""
    world.rssm.scan = Scan(world.rssm, "inductor")  # type: ignore[method-assign]
    for module in world.encoder.modules():
        if isinstance(module, PoolEncoder):
            module.folded = True
    for owner, names in (
        (world, ("encoded", "predicted")),
        (behavior, ("advance", "foresee", "judged", "replay_loss")),
        *((stepper, ("step",)) for stepper in steppers),
    ):
        for name in names:
            _replace(owner, name)


def _replace(owner: Any, name: str) -> None:
    setattr(owner, name, torch.compile(getattr(owner, name), dynamic=False))
