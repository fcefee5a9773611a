"""Kinds of updates: which losses are worked out, and which optimisers step down them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..config.dreamer import StepConfig
from ..nn import ranks
from ..nn.optim import Stepper
from ..world.model import Seen, Window
from .behavior import Behavior

Told = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Losses by name, and metrics."""

Later = Callable[[], Told]
"""Losses that are worked out when they are asked for, as nothing else waits for them."""

TRAINED = ("actor", "critic", "replay_critic")
"""Losses of the behaviour; those of the explorer begin with `explore/`, all others are the world model's."""


@dataclass(frozen=True)
class Lesson:
    """One kind of update."""

    behave: Callable[[Seen, Window], tuple[Told, Later]]
    """Losses of what is dreamt from the states of a window: those that the states learn from, then those they do not.
    Metrics have their whole names."""
    predict: Callable[[Seen, Window], Told]
    """Losses of what is predicted from them."""
    steppers: dict[str, Stepper]
    behaviors: tuple[Behavior, ...]
    """Whose slow critics follow."""
    still: bool = False
    """Whether states come from a world model that does not learn."""

    def step(self, losses: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Step down the gradients that losses have left; whether both are finite and so it was done, and metrics."""
        norms = {name: stepper.norm() for name, stepper in self.steppers.items()}
        metrics = {metric_of(name): loss.detach().mean() for name, loss in losses.items()}
        # what is not finite is so for all processes, which must make the same step
        finite = torch.isfinite(ranks.average_(torch.stack([*norms.values(), *metrics.values()]))).all()
        for name, stepper in self.steppers.items():
            stepper.step(norms[name], finite)
        for behavior in self.behaviors:
            behavior.follow(finite)
        return finite, metrics | {f"train/{name}_grad_norm": norm for name, norm in norms.items()}


def descend(losses: dict[str, Tensor]) -> None:
    """Leave the gradients of the sum of all losses, each averaged, with what they depend on."""
    if losses:
        torch.stack([loss.mean() for loss in losses.values()]).sum().backward()


def metric_of(loss: str) -> str:
    """The name that a loss is logged under."""
    if loss.startswith("explore/"):
        return f"{loss}_loss"
    return f"train/{loss}_loss" if loss in TRAINED else f"world/{loss}_loss"


def named(part: str, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values under the name of the part that they are of."""
    return {f"{part}/{name}": value for name, value in values.items()}


def stepper_of(config: StepConfig, *modules: nn.Module) -> Stepper:
    """One optimiser for several modules."""
    return Stepper([parameter for module in modules for parameter in module.parameters()], config)
