"""Recurrent cells of the world model: from state, latent and action to the next state.

The part of the action is worked out by `embed`, for all steps of a window at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .layers import LayerNorm, Layers


def limited(action: Tensor) -> Tensor:
    """Actions with every entry scaled to at most 1 in magnitude."""
    return action / action.detach().abs().clamp(min=1)


class PlainCell(nn.Module):
    """A dense layer and a GRU."""

    def __init__(self, make: Layers, deter: int, stoch: int, action: int, hidden: int) -> None:
        super().__init__()
        self.stoch_in, self.action_in = make.shares((stoch, action), hidden)
        self.tail = make.tail(hidden)
        self.gru = nn.GRUCell(hidden, deter)
        nn.init.xavier_uniform_(self.gru.weight_ih)
        nn.init.orthogonal_(self.gru.weight_hh)  # all gates together
        nn.init.zeros_(self.gru.bias_ih)
        nn.init.zeros_(self.gru.bias_hh)

    def embed(self, action: Tensor) -> Tensor:
        """The action's share of the dense layer (..., hidden)."""
        return self.action_in(limited(action))

    def forward(self, deter: Tensor, stoch: Tensor, embedded: Tensor) -> Tensor:
        """The next deterministic state (B, D)."""
        inputs = self.tail(self.stoch_in(stoch) + embedded).float()
        with torch.autocast(inputs.device.type, enabled=False):  # the state must not be rounded at every step
            return self.gru(inputs, deter.float())


class NormCell(nn.Module):
    """A dense layer and a GRU whose gates are layer-normalised, with a late reset and a bias towards keeping.

    `biased` gates have a bias before the norm, besides the one after it.
    """

    def __init__(self, make: Layers, deter: int, stoch: int, action: int, hidden: int, biased: bool = False) -> None:
        super().__init__()
        self.stoch_in, self.action_in = make.shares((stoch, action), hidden)
        self.tail = make.tail(hidden)
        self.gates = make.linear(deter + hidden, 3 * deter, bias=biased)
        self.norm = LayerNorm(3 * deter)

    def embed(self, action: Tensor) -> Tensor:
        """The action's share of the dense layer (..., hidden)."""
        return self.action_in(limited(action))

    def forward(self, deter: Tensor, stoch: Tensor, embedded: Tensor) -> Tensor:
        """The next deterministic state (B, D)."""
        x = self.tail(self.stoch_in(stoch) + embedded)
        return gated(deter, self.norm(self.gates(torch.cat([deter, x.to(deter.dtype)], -1))).float())


class BlockCell(nn.Module):
    """A GRU with block-diagonal weights; every block sees all of latent, action and a summary of the state."""

    def __init__(self, make: Layers, deter: int, stoch: int, action: int, hidden: int, blocks: int) -> None:
        super().__init__()
        self.blocks = blocks
        width = deter // blocks
        self.deter_in = make.dense(deter, hidden)
        self.stoch_in = make.dense(stoch, hidden)
        self.action_in = make.dense(action, hidden)
        self.mix = make.blocks(blocks, width + 3 * hidden, width)
        self.tail = make.tail(deter)
        self.gates = make.blocks(blocks, width, 3 * width)

    def embed(self, action: Tensor) -> Tensor:
        """The action's features (..., hidden)."""
        return self.action_in(limited(action))

    def forward(self, deter: Tensor, stoch: Tensor, embedded: Tensor) -> Tensor:
        """The next deterministic state (B, D)."""
        inputs = torch.cat([self.deter_in(deter), self.stoch_in(stoch), embedded], -1)
        blocks = deter.unflatten(-1, (self.blocks, -1))  # (B, g, D / g)
        shared = inputs.unsqueeze(1).expand(-1, self.blocks, -1)  # (B, g, 3 hidden)
        x = self.mix(torch.cat([blocks.to(shared.dtype), shared], -1))
        x = self.tail(x.flatten(1)).reshape(blocks.shape)
        return gated(blocks, self.gates(x).float()).flatten(1)


def gated(state: Tensor, gates: Tensor) -> Tensor:
    """The next state from gates (..., 3 D): reset, candidate, update; the update leans towards keeping by 1."""
    reset, candidate, update = gates.chunk(3, -1)
    candidate = torch.tanh(reset.sigmoid() * candidate)
    return torch.lerp(state.to(gates.dtype), candidate, (update - 1).sigmoid())


@dataclass(frozen=True)
class CellWeights:
    """What the products of a cell of blocks take, rounded as they take it, but for the scale of its norm."""

    mix: Tensor
    """(g, D / g + 3 h, D / g)"""
    mix_bias: Tensor
    scale: Tensor
    gates: Tensor
    """(g, D / g, 3 D / g)"""
    gates_bias: Tensor
    eps: float
