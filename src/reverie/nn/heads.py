"""Heads: from features to distributions of actions."""

from __future__ import annotations

import math

import torch
from gymnasium import spaces
from torch import Tensor, nn

from .blocks import orthogonal
from .dists import Categorical, Dist, MultiCategorical, Normal


class PolicyHead(nn.Module):
    """A linear layer whose outputs parametrise the distribution that fits an action space."""

    def __init__(self, features: int, space: spaces.Space, log_std: float = 0.0, gain: float = 0.01) -> None:
        super().__init__()
        self.sizes = _sizes(space)
        self.continuous = isinstance(space, spaces.Box)
        self.single = isinstance(space, spaces.Discrete)
        self.linear = orthogonal(nn.Linear(features, sum(self.sizes)), gain)
        if self.continuous:
            self.log_std = nn.Parameter(torch.full((self.sizes[0],), log_std))

    def forward(self, features: Tensor) -> Dist:
        """The distribution of actions at features (..., F)."""
        outputs = self.linear(features)
        if self.continuous:
            return Normal(outputs, self.log_std)
        return Categorical(outputs) if self.single else MultiCategorical(outputs, self.sizes)


def _sizes(space: spaces.Space) -> tuple[int, ...]:
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec)
    assert isinstance(space, spaces.Box), space
    return (math.prod(space.shape),)
