"""Heads: from features to distributions of actions, and to numbers."""

from __future__ import annotations

import math

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from ..envs.joint import Joint, parts_of
from .blocks import orthogonal
from .dists import Categorical, Dist, MultiCategorical, Normal, SideBySide
from .layers import Layers
from .outputs import Number


class PolicyHead(nn.Module):
    """A linear layer whose outputs parametrise the distribution that fits an action space."""

    def __init__(self, features: int, space: spaces.Space, log_std: float = 0.0, gain: float = 0.01) -> None:
        super().__init__()
        self.joint = isinstance(space, Joint)
        if self.joint:
            self.parts = nn.ModuleList(PolicyHead(features, part, log_std, gain) for part in parts_of(space))
            return
        self.sizes = _sizes(space)
        self.continuous = isinstance(space, spaces.Box)
        self.single = isinstance(space, spaces.Discrete)
        self.linear = orthogonal(nn.Linear(features, sum(self.sizes)), gain)
        if self.continuous:
            self.log_std = nn.Parameter(torch.full((self.sizes[0],), log_std))

    def forward(self, features: Tensor) -> Dist:
        """The distribution of actions at features (..., F)."""
        if self.joint:
            return SideBySide([part(features) for part in self.parts])
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


class NumberHead(nn.Module):
    """Dense layers and an output that says what their result means: one number for each feature vector."""

    def __init__(
        self, make: Layers, features: int, units: int, layers: int, output: Number, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.body = make.mlp(features, units, layers)
        self.linear = make.linear(units if layers else features, output.size, scale, last=True)
        self.output = output

    def forward(self, features: Tensor) -> Tensor:
        """Raw outputs (..., size), for `output.pred` and `output.loss`."""
        inputs = self.body(features)
        # never in half precision: logits rounded to bfloat16 blur a value of 450 by about a half
        with torch.autocast(inputs.device.type, enabled=False):
            return self._outputs(inputs.float())

    def _outputs(self, inputs: Tensor) -> Tensor:
        """The last layer's outputs (..., size)."""
        size = self.linear.out_features
        if size < 8 or size % 8 == 0 or not inputs.is_cuda:
            return self.linear(inputs)
        spare = -size % 8  # GPUs are slow at products of odd widths
        weight, bias = F.pad(self.linear.weight, (0, 0, 0, spare)), F.pad(self.linear.bias, (0, spare))
        return F.linear(inputs, weight, bias)[..., :size]

    def pred(self, features: Tensor) -> Tensor:
        """The expected number (...)."""
        return self.output.pred(self(features))

    def loss(self, features: Tensor, target: Tensor) -> Tensor:
        """The loss of a target (...)."""
        return self.output.loss(self(features), target)
