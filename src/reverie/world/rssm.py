"""The recurrent state-space model: a deterministic state that remembers, and a latent drawn at every step.

The posterior latent is inferred from the state and an observation, the prior one is predicted from the state alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..config.dreamer import WorldConfig
from ..config.errors import UserError
from ..nn.gru import BlockCell, NormCell, PlainCell
from ..nn.layers import Layers
from .latent import make_latent


class State(NamedTuple):
    """Deterministic state (..., D) and latent draw (..., Z)."""

    deter: Tensor
    stoch: Tensor

    @property
    def feature(self) -> Tensor:
        """Both side by side (..., F), which is what heads see."""
        return torch.cat([self.deter, self.stoch], -1)

    def flat(self) -> State:
        """The same with leading dimensions joined to one."""
        return State(self.deter.flatten(0, -2), self.stoch.flatten(0, -2))

    def detach(self) -> State:
        """The same without gradient."""
        return State(self.deter.detach(), self.stoch.detach())


class RSSM(nn.Module):
    """Filters observations into states and dreams on from states."""

    def __init__(self, config: WorldConfig, embed: int, action: int, make: Layers) -> None:
        super().__init__()
        self.latent = make_latent(config)
        self.deter = config.deter
        self.cell = make_cell(config, self.latent.size, action, make)
        width = config.hidden
        self.prior_net = make.mlp(config.deter, width, config.prior_layers)
        self.prior_out = make.linear(width if config.prior_layers else config.deter, self.latent.outputs, last=True)
        # the observation's share of the first layer is worked out for a whole window at once
        self.deter_in, self.embed_in = make.shares((config.deter, embed), width)
        self.posterior_net = nn.Sequential(make.tail(width), make.mlp(width, width, config.posterior_layers - 1))
        self.posterior_out = make.linear(width, self.latent.outputs, last=True)
        self.start = nn.Parameter(torch.zeros(config.deter)) if config.initial == "learned" else None

    def initial(self, batch: int) -> State:
        """The state before the first row of `batch` episodes."""
        weight = self.prior_out.weight
        if self.start is None:
            return State(weight.new_zeros(batch, self.deter), weight.new_zeros(batch, self.latent.size))
        deter = self.start.tanh().expand(batch, -1)
        return State(deter, self.latent.mode(self.prior(deter)))

    def prior(self, deter: Tensor) -> Tensor:
        """Parameters of the predicted latent."""
        return self.latent.params(self.prior_out(self.prior_net(deter)))

    def posterior(self, deter: Tensor, embedded: Tensor) -> Tensor:
        """Parameters of the inferred latent; `embedded` is the observation's share of the first layer."""
        return self.latent.params(self.posterior_out(self.posterior_net(self.deter_in(deter) + embedded)))

    def reset(self, state: State, is_first: Tensor) -> State:
        """The state with its rows (B,) replaced by the initial one where an episode begins."""
        first = is_first.unsqueeze(-1)
        # replaced and not multiplied by 0: a state that is not finite must not outlive its episode
        if self.start is None:
            return State(state.deter.masked_fill(first, 0), state.stoch.masked_fill(first, 0))
        initial = self.initial(is_first.shape[0])  # not len: torch.export would take the batch for a constant
        return State(*(torch.where(first, new, old) for new, old in zip(initial, state)))

    def observe(
        self, start: State, embed: Tensor, action: Tensor, is_first: Tensor, generator: torch.Generator
    ) -> tuple[State, Tensor]:
        """States (B, T) of a window and the parameters of their latents.

        `action[:, t]` is the one that led to row t. Where `is_first`, both it and the state before are forgotten.
        """
        acted, embedded = self.shares(embed, action, is_first)
        return self.scan(start, is_first, acted, embedded, self.latent.noise(tuple(is_first.shape), generator))

    def shares(self, embed: Tensor, action: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """What actions and observations add to the filter's layers, which no state is needed for (..., hidden)."""
        return self.cell.embed(action.masked_fill(is_first.unsqueeze(-1), 0)), self.embed_in(embed)

    def scan(
        self, start: State, is_first: Tensor, acted: Tensor, embedded: Tensor, noise: Tensor
    ) -> tuple[State, Tensor]:
        """The filter over a window (B, T)."""
        state, states, params = start, [], []
        for t in range(is_first.shape[1]):
            state, inferred = self.filter(state, is_first[:, t], acted[:, t], embedded[:, t], noise[:, t])
            states.append(state)
            params.append(inferred)
        deter, stoch = (torch.stack(parts, 1) for parts in zip(*states))
        return State(deter, stoch), torch.stack(params, 1)

    def filter(
        self, state: State, is_first: Tensor, acted: Tensor, embedded: Tensor, noise: Tensor
    ) -> tuple[State, Tensor]:
        """The state (B,) after one more row, and the parameters of its latent; `acted` and `embedded` as in observe."""
        state = self.reset(state, is_first)
        deter = self.cell(state.deter, state.stoch, acted)
        inferred = self.posterior(deter, embedded)
        return State(deter, self.latent.sample(inferred, noise)), inferred

    def step(self, state: State, action: Tensor, noise: Tensor) -> State:
        """The state (B,) dreamt to follow when that action is taken."""
        deter = self.cell(state.deter, state.stoch, self.cell.embed(action))
        deter = deter.to(state.deter.dtype)  # where dreams are kept in half precision, before it is written anywhere
        return State(deter, self.latent.sample(self.prior(deter), noise))

    def imagine(self, start: State, advance: Advance, draws: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Features (H + 1, B, F) of states dreamt from a start (B,), itself the first, and the actions (H, B) between.

        Both actions and latents are made of random numbers, `draws` (H, B, ...) and `noise` (H, B, ...).
        """
        states, actions = [start], []
        for draw, shake in zip(draws, noise):
            state, action = advance(states[-1], draw, shake)
            states.append(state)
            actions.append(action)
        return torch.stack([state.feature for state in states]), torch.stack(actions)


Advance = Callable[[State, Tensor, Tensor], tuple[State, Tensor]]
"""From a state and the random numbers of action and latent to the state dreamt to follow, and the action."""


def make_cell(config: WorldConfig, stoch: int, action: int, make: Layers) -> BlockCell | NormCell | PlainCell:
    """The recurrent cell that the configuration asks for."""
    if config.cell == "block":
        if config.deter % config.blocks:
            raise UserError(f"--world.deter {config.deter} does not divide into --world.blocks {config.blocks}")
        return BlockCell(make, config.deter, stoch, action, config.hidden, config.blocks)
    if config.cell == "norm":
        return NormCell(make, config.deter, stoch, action, config.hidden, config.gate_bias)
    return PlainCell(make, config.deter, stoch, action, config.hidden)
