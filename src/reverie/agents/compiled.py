"""Dreamer's parts as compiled functions. Each is small enough to compile in seconds, and is compiled once."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._triton import has_triton

from ..nn.halved import Halved
from ..nn.optim import Stepper
from ..nn.tail import fusible
from ..world.images import PoolEncoder
from ..world.kernel.persistent import PersistentScan
from ..world.kernel.program import Program
from ..world.kernel.shape import shape_of, unfit
from ..world.model import WorldModel
from ..world.rssm import RSSM, State
from ..world.scan import Scan
from .behavior import Behavior

LOG = logging.getLogger("reverie")

BACKEND = "inductor"


def hasten(world: WorldModel, behaviors: Iterable[Behavior], steppers: Iterable[Stepper]) -> None:
    """Replace the functions that an update spends its time in by compiled ones that do the same."""
    world.rssm.scan = Scan(world.rssm, BACKEND)  # type: ignore[method-assign]
    for module in world.encoder.modules():
        if isinstance(module, PoolEncoder):
            module.folded = True
            module.fused = all(fusible(tail, module.taps.device) for tail in module.tails)
    _replace(world, "encoded", "predicted")
    _replace(world.rssm, "shares")
    for behavior in behaviors:
        _replace(behavior, *behavior.heavy)
        if behavior.through_dynamics:
            _replace(behavior, "advance")
        else:
            behavior.dreamt = Dreaming(world.rssm, behavior)  # type: ignore[method-assign]
    for stepper in steppers:
        _replace(stepper, "step")


def persist(rssm: RSSM, batch: int, half: bool) -> None:
    """Let the filter stay on the GPU for all steps of a window, where its kernel fits; where not, say why."""
    if reason := unfit(rssm, batch, half):
        LOG.info("the filter is compiled step by step and has no kernel of its own: %s", reason)
        return
    try:
        program = Program(shape_of(rssm), next(rssm.parameters()).device)
    except (RuntimeError, OSError) as error:  # of the compiler, the driver, or for a GPU that is too small
        LOG.warning("the filter is compiled step by step, which is slower than its own kernel: %s", first_line(error))
        return
    rssm.scan = PersistentScan(rssm, program, BACKEND)  # type: ignore[method-assign]


def manner(fast: str, device: torch.device) -> str:
    """How updates are to run: `compile`, `shared`, `graph`, `native` or `off`; what cannot be compiled is said."""
    if fast == "auto":
        fast = "native" if device.type != "cuda" else "compile" if has_triton() else "graph"
    if fast == "native" and device.type != "cpu":
        LOG.warning("--run.fast native is for a CPU: updates run as a graph of the GPU")
        return "graph"
    if fast in ("compile", "shared") and (reason := obstacle(device)):
        LOG.warning("updates are not compiled, which is slower: %s", reason)
        return "graph"
    return fast


def obstacle(device: torch.device) -> str:
    """Why nothing can be compiled for a device, in a line; empty if something can."""
    try:
        torch.compile(lambda x: (2 * x).sum(), backend=BACKEND)(torch.ones(8, device=device))
    except Exception as error:  # compilers fail in all kinds of ways
        return first_line(error)
    return ""


def first_line(error: Exception) -> str:
    """What an error says, in a line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _replace(owner: Any, *names: str) -> None:
    for name in names:
        setattr(owner, name, torch.compile(getattr(owner, name), backend=BACKEND, dynamic=False))


class Actor(nn.Module):
    """World model and policy, as a module whose weights can be handed in."""

    def __init__(self, rssm: RSSM, behavior: Behavior) -> None:
        super().__init__()
        self.rssm, self.actor = rssm, behavior.actor
        self.advance = behavior.advance

    def forward(self, state: State, draw: Tensor, noise: Tensor) -> tuple[State, Tensor]:
        """The state dreamt to follow, and the action that leads there."""
        return self.advance(self.rssm, state, draw, noise)


class Dreaming:
    """Does what `Behavior.dreamt` does where no gradient goes through dreams.

    Features are written where they stay, as heads want them: in half precision where that is on.
    """

    def __init__(self, rssm: RSSM, behavior: Behavior) -> None:
        self.actor = Actor(rssm, behavior)
        self.halved = Halved(self.actor)
        self.step = torch.compile(self._step, backend=BACKEND, dynamic=False)

    def __call__(self, rssm: RSSM, start: State, draws: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Features (H + 1, B, F) and actions (H, B, A) of dreams from a start (B,), with the weights of now."""
        weights, first = self.halved(), start.feature.to(self.halved.kind)
        features = first.new_empty(len(draws) + 1, *first.shape)
        features[0] = first
        steps = zip(features, features[1:], draws, noise)
        return features, torch.stack([self.step(weights, *each) for each in steps])

    def _step(self, weights: dict[str, Tensor], feature: Tensor, after: Tensor, draw: Tensor, noise: Tensor) -> Tensor:
        """The action at features (B, F); those that it leads to are written to `after`."""
        state = State(*feature.split([self.actor.rssm.deter, self.actor.rssm.latent.size], -1))
        found, action = functional_call(self.actor, weights, (state, draw, noise))
        after.copy_(found.feature)
        return action
