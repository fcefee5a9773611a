"""Dreamer's parts as compiled functions. Each is small enough to compile in seconds, and is compiled once."""

from __future__ import annotations

import contextlib
import copyreg
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._triton import has_triton

from ..config.errors import first_line
from ..nn.halved import Halved
from ..nn.optim import Stepper
from ..nn.patches import patches_of
from ..nn.tail import fusible
from ..world.images import PoolDecoder, PoolEncoder
from ..world.kernel.persistent import PersistentScan
from ..world.kernel.program import Program
from ..world.kernel.shape import shape_of, unfit
from ..world.model import WorldModel
from ..world.rssm import RSSM, State
from ..world.scan import Scan
from .behavior import Behavior
from .dreaming import KernelDreaming, unsuited

LOG = logging.getLogger("reverie")

BACKEND = "inductor"


COSTS = {
    "reconstructed": 8, "encoded": 6, "judged": 5, "predicted": 4, "replay_loss": 4, "all_steps": 4, "step": 4,
    "dream": 3, "advance": 3, "foresee": 2, "studied": 2,
}  # fmt: skip
"""How long functions take to be compiled, beside others, which count as 1."""

AUTOCAST = ("torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast")
"""Functions that torch's cache of compiled gradients does not know."""
FORMS = 64
"""Forms of one function, by shapes and by whether gradients are wanted, until torch runs further ones as they are: all
agents of a process together."""


@dataclass(frozen=True)
class Region:
    """A function of an update that is compiled by itself."""

    owner: Any
    attribute: str
    cost: int

    def compile(self) -> None:
        """Let it be compiled when it is called next, or be taken from torch's cache on disk."""
        plain = getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, torch.compile(plain, backend=BACKEND, dynamic=False))


@dataclass(frozen=True)
class Dreamt(Region):
    """The steps of dreams, whose place kernels take; where these fail, they are compiled as others are."""

    behavior: Behavior
    kernels: KernelDreaming

    def compile(self) -> None:
        """Let kernels dream from now on, which Triton compiles or finds on disk."""
        if reason := self.kernels.trouble():
            LOG.warning("dreams are compiled step by step, which is slower than their own kernels: %s", reason)
            super().compile()
        else:
            self.behavior.dreamt = self.kernels  # type: ignore[method-assign]
            self.owner.halved.rounded.clear()


Regions = dict[str, Region]
"""By name, which is the same for all agents of a configuration."""


def hasten(
    world: WorldModel, behaviors: Mapping[str, Behavior], steppers: Mapping[str, Stepper], half: bool
) -> Regions:
    """Give parts the forms that compile well, and find the functions that an update spends its time in: still plain."""
    keep_compiled()
    if not isinstance(world.rssm.scan, Scan):
        world.rssm.scan = Scan(world.rssm)  # type: ignore[method-assign]
    for module in world.modules():
        if isinstance(module, PoolEncoder):
            module.folded = True
        if isinstance(module, PoolEncoder | PoolDecoder):
            device = next(module.parameters()).device
            module.fused = all(fusible(tail, device) for tail in module.tails)
    found: Regions = {}
    _find(found, "", world, "encoded", *(["reconstructed"] if world.decoder is not None else []), "predicted")
    _find(found, "", world.rssm, "shares")
    _find(found, "", world.rssm.scan, "all_steps", "step")
    for name, behavior in behaviors.items():
        _find(found, f"{name}/", behavior, *behavior.heavy)
        if behavior.through_dynamics:
            _find(found, f"{name}/", behavior, "advance")
        else:
            found[f"{name}/dream"] = _dreams(world.rssm, behavior, half)
    for name, stepper in steppers.items():
        found[f"{name}/optimizer"] = Region(stepper, "descend", 1)
    if isinstance(world.rssm.scan, PersistentScan):
        found.pop("step").compile()  # for reports alone: updates have a kernel
    return found


def _dreams(rssm: RSSM, behavior: Behavior, half: bool) -> Region:
    """What is compiled of dreams, or the kernels that take their place."""
    behavior.dreamt = plain = Dreaming(rssm, behavior)  # type: ignore[method-assign]
    device = rssm.prior_out.weight.device
    if device.type != "cuda" or not has_triton():
        return Region(plain, "step", COSTS["dream"])
    if reason := unsuited(rssm, behavior, half):
        LOG.info("dreams are compiled step by step and have no kernels of their own: %s", reason)
        return Region(plain, "step", COSTS["dream"])
    return Dreamt(plain, "step", COSTS["dream"], behavior, KernelDreaming(rssm, behavior))


def _find(found: Regions, prefix: str, owner: Any, *names: str) -> None:
    found.update({prefix + name: Region(owner, name, COSTS.get(name, 1)) for name in names})


def keep_compiled() -> None:
    """Let other processes find in torch's cache what this one has compiled, and as many forms be compiled as there are.

    The cache keeps no functions that turn autocast off inside unless it is told that it can; what they turn off is a
    part of their graphs. And its keys are pickles, in which a memory format would go by the first module that has
    loaded torch. Triton's own cache is to lie where torch has it from its first kernel on.
    """
    from torch._dynamo import config as tracing  # torch's compiler, which takes as long to load as the rest
    from torch._inductor import config
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

    with contextlib.suppress(OSError):  # there is nowhere to keep anything
        os.environ.setdefault("TRITON_CACHE_DIR", triton_cache_dir(0))
    tracing.recompile_limit = max(tracing.recompile_limit, FORMS)
    kept = config.unsafe_marked_cacheable_functions | dict.fromkeys(AUTOCAST, torch.__version__)
    config.unsafe_marked_cacheable_functions = kept
    copyreg.pickle(torch.memory_format, _reduced)


def memory_format(name: str) -> torch.memory_format:
    """The memory format of that name."""
    found: torch.memory_format = getattr(torch, name)
    return found


def _reduced(kind: torch.memory_format) -> tuple[Any, tuple[str]]:
    return memory_format, (str(kind).removeprefix("torch."),)


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
    rssm.scan = PersistentScan(rssm, program)  # type: ignore[method-assign]


def manner(fast: str, device: torch.device, tried: bool = True) -> str:
    """How updates are to run: `compile`, `shared`, `graph`, `native` or `off`; what cannot be compiled is said.

    Whether anything can be is tried out, or no more than what updates need before anything is.
    """
    if fast == "auto":
        fast = "native" if device.type != "cuda" else "compile" if has_triton() else "graph"
    if fast == "native" and device.type != "cpu":
        LOG.warning("--run.fast native is for a CPU: updates run as a graph of the GPU")
        return "graph"
    if fast in ("compile", "shared") and (reason := obstacle(device) if tried else hitch(device)):
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


def hitch(device: torch.device) -> str:
    """Why not even a small kernel of ours can be made for a device, in a line: found out in a second, not in six."""
    try:
        patches_of(torch.zeros(1, 64, 64, 3, dtype=torch.bfloat16, device=device))
    except Exception as error:  # Triton wants a compiler of C, and fails in ways of its own
        return first_line(error)
    return ""


class Actor(nn.Module):
    """World model and policy, as a module whose weights can be handed in."""

    def __init__(self, rssm: RSSM, behavior: Behavior) -> None:
        super().__init__()
        self.rssm, self.actor = rssm, behavior.actor
        self.chosen = behavior.chosen

    def forward(self, feature: Tensor, draw: Tensor, noise: Tensor) -> tuple[State, Tensor]:
        """The state dreamt to follow features (B, F), and the action that leads there."""
        action = self.chosen(feature, draw)
        state = State(*feature.split([self.rssm.deter, self.rssm.latent.size], -1))
        return self.rssm.step(state, action, noise), action


class Dreaming:
    """Does what `Behavior.dreamt` does where no gradient goes through dreams.

    Features are written where they stay, as heads want them: in half precision where that is on.
    """

    def __init__(self, rssm: RSSM, behavior: Behavior) -> None:
        self.actor = Actor(rssm, behavior)
        self.halved = Halved(self.actor)
        self.step = self._step

    def __call__(self, rssm: RSSM, start: State, draws: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Features (H + 1, B, F) and actions (H, B, A) of dreams from a start (B,), with the weights of now."""
        weights, first = self.halved(), start.feature.to(self.halved.kind)
        features = first.new_empty(len(draws) + 1, *first.shape)
        features[0] = first
        steps = zip(features, features[1:], draws, noise)
        return features, torch.stack([self.step(weights, *each) for each in steps])

    def _step(self, weights: dict[str, Tensor], feature: Tensor, after: Tensor, draw: Tensor, noise: Tensor) -> Tensor:
        """The action at features (B, F); those that it leads to are written to `after`."""
        found, action = functional_call(self.actor, weights, (feature, draw, noise))
        for place, part in zip(after.split([part.shape[-1] for part in found], -1), found):
            place.copy_(part)  # joined first, they would be copied twice
        return action
