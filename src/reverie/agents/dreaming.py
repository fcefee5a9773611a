"""Dreams on a GPU by kernels of our own: four to a step besides a product, where plain operations are some thirty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MethodType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..config.errors import first_line
from ..nn.actions import bounded_normal
from ..nn.gru import BlockCell, CellWeights
from ..nn.layers import RMSNorm
from ..nn.native.machine import plainly
from ..world.latent import Categorical
from ..world.rssm import RSSM, State
from .behavior import Behavior

MOST = 64
"""Actions to choose from, or numbers of one."""
LEAST, WIDEST, LARGEST = 16, 256, 1024
"""Numbers of layers and latents that a program multiplies, and has room for."""


def unsuited(rssm: RSSM, behavior: Behavior, half: bool) -> str:
    """Why dreams of a model are not what the kernels are made for, in a line; empty if they are."""
    latent, cell, policy = rssm.latent, rssm.cell, behavior.policy
    if not isinstance(cell, BlockCell) or not isinstance(latent, Categorical):
        return "they are made for the block cell and categorical latents"
    if behavior.through_dynamics:
        return "they carry no gradients (--behavior.gradient)"
    if [part.groups for part in policy.parts] not in ([0], [1]) or policy.parts[0].size > MOST:
        return f"they are made for one choice of action, or for numbers, of either at most {MOST}"
    if not policy.discrete and policy.make is not bounded_normal:
        return "they are made for bounded normals (--behavior.continuous)"
    body = list(behavior.actor[0].children())
    layers = [*rssm.prior_net, *body, *cell.deter_in, *cell.stoch_in, *cell.action_in, *cell.tail]
    tails = [type(part) for part in layers if not isinstance(part, nn.Linear)]
    if set(tails) != {RMSNorm, nn.SiLU} or len(tails) % 2 or not rssm.prior_net or not body:
        return "they need RMS norms, SiLU, and a layer at least of prior and actor"
    widths = {len(part.weight) for part in layers if isinstance(part, nn.Linear)}
    if len(widths) != 1 or any(count & (count - 1) for count in (*widths, latent.groups, latent.classes)):
        return "they need one width of layers, and powers of 2"
    if not (LEAST <= max(widths) <= WIDEST and LEAST <= latent.size <= LARGEST):
        return f"they are made for layers of {LEAST} to {WIDEST} numbers, and latents of {LEAST} to {LARGEST}"
    if rssm.deter // cell.blocks % 64:
        return "they need blocks of a multiple of 64"
    return "" if half else "they compute in bfloat16 (--world.precision)"


@dataclass(frozen=True)
class Thoughts:
    """Weights as products take them, rows by outputs, and the widths of a kernel."""

    layers: Tensor
    """Of the prior beyond its first, then of the actor (n, h, h)."""
    biases: Tensor
    scales: Tensor
    """Of the norms after these (n, h)."""
    first_scales: Tensor
    """Of prior, state, latent and actor (4, h)."""
    prior_out: tuple[Tensor, Tensor]
    by_stoch: tuple[Tensor, Tensor]
    """Of latent and actor, one above the other (2 h, Z)."""
    actor_out: tuple[Tensor, Tensor]
    action_in: tuple[Tensor, Tensor, Tensor]
    """Turned weights (A, h), biases, and scales of the norm after."""
    prior_layers: int
    groups: int
    mixed: tuple[float, float]
    """The share of uniform classes in latents and in actions."""
    eps: float
    spread: tuple[float, float] | None = None
    """The least and the largest deviation of actions that are normal."""
    limit: float = 0.0
    """Largest magnitude of the policy's outputs, which is known when it dreams."""


@dataclass(frozen=True)
class Piece:
    """A weight by its name, or some of its columns, or with rows and columns exchanged."""

    name: str
    start: int = 0
    stop: int | None = None
    turned: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is the weight as it is."""
        return not self.turned and not self.start and self.stop is None

    def of(self, weights: Mapping[str, Tensor]) -> Tensor:
        """What it is now."""
        weight = weights[self.name].detach()
        return weight.T if self.turned else weight if self.whole else weight[:, self.start : self.stop]


class KernelDreaming:
    """Does what `Dreaming` does, from latents that are draws."""

    def __init__(self, rssm: RSSM, behavior: Behavior, kind: torch.dtype = torch.bfloat16) -> None:
        self.rssm, self.behavior = rssm, behavior
        self.kind, self.device = kind, rssm.prior_out.weight.device
        self.weights = dict(rssm.named_parameters())
        self.weights |= {f"actor.{name}": weight for name, weight in behavior.actor.named_parameters()}
        self.same: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
        self.changed: list[tuple[Tensor, Piece]] = []
        by_state = Piece("actor.0.0.weight", stop=rssm.deter)
        self.by_deter = (
            self._rounded("prior_net.0.weight", "cell.deter_in.0.weight", by_state),
            self._rounded("prior_net.0.bias", "cell.deter_in.0.bias", "actor.0.0.bias"),
        )
        self.thoughts = self._thoughts(rssm, behavior)
        self.cell = self._cell(rssm)

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[Behavior, str]]:
        """A copy of the behaviour dreams by itself."""
        return plainly, (self.behavior, "dreamt")

    def _thoughts(self, rssm: RSSM, behavior: Behavior) -> Thoughts:
        cell, latent, policy, weights = rssm.cell, rssm.latent, behavior.policy, self.weights
        assert isinstance(cell, BlockCell) and isinstance(latent, Categorical)
        prior = [("prior_net", i) for i in range(3, len(rssm.prior_net), 3)]
        further = prior + [("actor.0", i) for i in range(3, len(list(behavior.actor[0].children())), 3)]
        firsts = ["prior_net.1.weight", "cell.deter_in.1.weight", "cell.stoch_in.1.weight", "actor.0.1.weight"]
        by_stoch = self._rounded("cell.stoch_in.0.weight", Piece("actor.0.0.weight", start=rssm.deter))
        shift = self._rounded("cell.stoch_in.0.bias", more=len(weights["actor.0.0.bias"]))
        acted = self._rounded(Piece("cell.action_in.0.weight", turned=True))
        return Thoughts(
            layers=self._stacked([f"{name}.{i}.weight" for name, i in further]),
            biases=self._stacked([f"{name}.{i}.bias" for name, i in further]),
            scales=self._stacked([f"{name}.{i + 1}.weight" for name, i in further], torch.float32),
            first_scales=self._stacked(firsts, torch.float32),
            prior_out=(self._rounded("prior_out.weight"), self._rounded("prior_out.bias")),
            by_stoch=(by_stoch, shift),
            actor_out=(self._rounded("actor.1.weight"), self._rounded("actor.1.bias")),
            action_in=(acted, self._rounded("cell.action_in.0.bias"), weights["cell.action_in.1.weight"]),
            prior_layers=len(prior),
            groups=latent.groups,
            mixed=(latent.unimix, policy.unimix),
            eps=eps_of(cell),
            spread=None if policy.discrete else (policy.limits.min, policy.limits.max),
        )

    def _cell(self, rssm: RSSM) -> CellWeights:
        found = {
            name: self._rounded(f"cell.{name}") for name in ("mix.weight", "mix.bias", "gates.weight", "gates.bias")
        }
        scale = self.weights["cell.tail.0.weight"]
        return CellWeights(
            found["mix.weight"], found["mix.bias"], scale, found["gates.weight"], found["gates.bias"], eps_of(rssm.cell)
        )

    @torch.no_grad()
    def __call__(self, rssm: RSSM, start: State, draws: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Features (H + 1, B, F) and actions (H, B, A) of dreams from a start (B,), with the weights of now."""
        from ..nn.gru_kernels import advance
        from .dream_kernels import think

        self.renew()
        deter, width = rssm.deter, 3 * len(self.thoughts.first_scales[0])
        thoughts = replace(self.thoughts, limit=float(self.behavior.limit))
        first, (horizon, count) = start.feature.to(self.kind), draws.shape[:2]
        features = first.new_empty(horizon + 1, *first.shape)
        actions = torch.empty(horizon + 1, count, len(self.thoughts.action_in[0]), device=self.device)
        features[0] = first
        held = first.new_empty(count, deter + width)  # the state, and what the cell takes besides
        held[:, :deter] = first[:, :deter]
        drawn = rssm.latent.pack(start.stoch).int()
        known = F.linear(held[:, :deter], *self.by_deter)
        think(thoughts, known, drawn, held, actions[0], draws[0])
        for t, (after, shake) in enumerate(zip(features[1:], noise), 1):
            advance(held, self.cell, after)
            known = F.linear(held[:, :deter], *self.by_deter)
            draw = draws[min(t, horizon - 1)]  # the last action is not taken
            think(thoughts, known, drawn, held, actions[t], draw, (shake, after[:, deter:]))
        return features, actions[:-1]

    def trouble(self) -> str:
        """Why the kernels do not run here, in a line; empty if they do."""
        generator, shape = torch.Generator(self.device), (1, LEAST)
        try:
            draws, noise = self.behavior.policy.noise(shape, generator), self.rssm.latent.noise(shape, generator)
            features, _ = self(self.rssm, self.rssm.initial(LEAST), draws, noise)
            if not features.isfinite().all():  # which waits for the device
                return "they dream of what is not finite"
        except Exception as error:  # compilers fail in all kinds of ways
            return first_line(error)
        return ""

    @torch.no_grad()
    def renew(self) -> None:
        """Round weights as they are now."""
        for pairs in self.same.values():  # of one type each, which goes in one kernel
            places, weights = zip(*pairs)
            torch._foreach_copy_(places, weights)
        for place, piece in self.changed:
            place.copy_(piece.of(self.weights))

    def _stacked(self, names: list[str], kind: torch.dtype | None = None) -> Tensor:
        if not names:
            return torch.empty(0, device=self.device)
        return self._rounded(*names, kind=kind).unflatten(0, (len(names), -1))

    def _rounded(self, *parts: str | Piece, kind: torch.dtype | None = None, more: int = 0) -> Tensor:
        """Memory for weights one above the other, which each call rounds to it as they are then, and `more` zeros."""
        pieces = [Piece(part) if isinstance(part, str) else part for part in parts]
        weights = [piece.of(self.weights) for piece in pieces]
        lengths = [len(weight) for weight in weights]
        shape = (sum(lengths) + more, *weights[0].shape[1:])
        found = torch.zeros(shape, dtype=kind or self.kind, device=self.device)
        for place, piece in zip(found.split([*lengths, more]), pieces):
            if piece.whole:
                self.same.setdefault(place.dtype, []).append((place, self.weights[piece.name]))
            else:
                self.changed.append((place, piece))
        return found


def eps_of(cell: nn.Module) -> float:
    """What keeps the norms of a cell from dividing by 0."""
    found: float = next(part.eps for part in cell.modules() if isinstance(part, RMSNorm))
    return found
