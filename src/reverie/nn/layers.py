"""How the layers of a world model are made: normalisation, activation, initial weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from .optim import cut_together

TRUNCATED = 1.1368
"""What a normal distribution cut at two deviations must be multiplied with to have deviation 1."""

ACTIVATIONS: dict[str, type[nn.Module]] = {"silu": nn.SiLU, "elu": nn.ELU, "relu": nn.ReLU}


class RMSNorm(nn.Module):
    """Vectors divided by their root mean square, times a learned scale; in float32 whatever comes in."""

    def __init__(self, size: int, eps: float = 1e-4) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """The normalised vectors (..., size), in the type they came in."""
        wide = x.float()
        special = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")  # which would round dot products
        if wide.is_cpu and torch.is_grad_enabled() and not special:
            found: Tensor = ScaledByRoot.apply(wide, self.weight, self.eps)
            return found.to(x.dtype)
        return (wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight).to(x.dtype)


class ScaledByRoot(torch.autograd.Function):
    """The same with its gradients in a few passes over the numbers, where torch takes a dozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Vectors divided by their root mean square, times the scale."""
        root = (torch.linalg.vecdot(x, x).unsqueeze(-1) / x.shape[-1] + eps).rsqrt()
        ctx.save_for_backward(x, weight, root)
        return (x * root).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *goals: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """The gradients of vectors and scale."""
        x, weight, root = ctx.saved_tensors
        by_x = by_weight = None
        if ctx.needs_input_grad[1]:
            by_weight = root.reshape(1, -1).mm((goals[0] * x).reshape(-1, x.shape[-1])).squeeze(0)
        if ctx.needs_input_grad[0]:
            by_x = goals[0] * weight
            along = torch.linalg.vecdot(by_x, x).unsqueeze(-1) * (root.pow(3) / -x.shape[-1])
            by_x = by_x.mul_(root).addcmul_(x, along)
        return by_x, by_weight, None


class LayerNorm(nn.LayerNorm):
    """Layer normalisation in float32 whatever comes in."""

    def __init__(self, size: int) -> None:
        super().__init__(size, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised vectors (..., size), in the type they came in."""
        return super().forward(x.float()).to(x.dtype)


class BlockLinear(nn.Module):
    """Blocks of inputs (..., g, i) each through weights of its own to (..., g, o)."""

    def __init__(self, blocks: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(blocks, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The outputs (..., g, o)."""
        flat = x.reshape(-1, *x.shape[-2:]).transpose(0, 1)  # (g, B, i)
        out = torch.bmm(flat, self.weight.to(flat.dtype)).transpose(0, 1)  # baddbmm would first copy the bias all over
        return out.reshape(*x.shape[:-1], -1) + self.bias.to(flat.dtype)


class MemberLinear(BlockLinear):
    """The same for inputs that lie by block, (g, B, i)."""

    def forward(self, x: Tensor) -> Tensor:
        """The outputs (g, B, o)."""
        return torch.bmm(x, self.weight.to(x.dtype)) + self.bias.unsqueeze(1).to(x.dtype)


@dataclass(frozen=True)
class Layers:
    """Makes layers of one manner."""

    norm: str = "rms"
    activation: str = "silu"
    init: str = "fan_in"

    def linear(self, inputs: int, outputs: int, scale: float = 1.0, last: bool = False, bias: bool = True) -> nn.Linear:
        """A linear layer with initial weights of that scale; `last` marks layers that parametrise a distribution."""
        layer = nn.Linear(inputs, outputs, bias=bias)
        self._fill(layer.weight, inputs, outputs, scale, last)
        if bias:
            nn.init.zeros_(layer.bias)
        return layer

    def shares(self, inputs: tuple[int, ...], outputs: int) -> tuple[nn.Linear, ...]:
        """One linear layer over several inputs, as a layer for each of them whose outputs add up to it."""
        layers = tuple(nn.Linear(size, outputs, bias=i == 0) for i, size in enumerate(inputs))
        for layer in layers:
            self._fill(layer.weight, sum(inputs), outputs, 1.0, False)
        cut_together(layers)
        nn.init.zeros_(layers[0].bias)
        return layers

    def blocks(self, blocks: int, inputs: int, outputs: int) -> BlockLinear:
        """A block-diagonal layer; inputs and outputs are those of one block, weights as small as for all together."""
        layer = BlockLinear(blocks, inputs, outputs)
        self._fill(layer.weight, blocks * inputs, blocks * outputs, 1.0, False)
        return layer

    def members(self, members: int, inputs: int, outputs: int) -> MemberLinear:
        """Layers of several networks side by side, each with weights as large as if it were alone."""
        layer = MemberLinear(members, inputs, outputs)
        self._fill(layer.weight, inputs, outputs, 1.0, False)
        return layer

    def side_by_side(self, members: int, inputs: int, outputs: int) -> nn.Linear:
        """The same as one layer, for networks that see the same inputs."""
        layer = nn.Linear(inputs, members * outputs)
        self._fill(layer.weight, inputs, outputs, 1.0, False)
        nn.init.zeros_(layer.bias)
        return layer

    def conv(self, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
        """A convolution."""
        layer = nn.Conv2d(inputs, outputs, kernel, stride, padding)
        self._fill(layer.weight, inputs * kernel**2, outputs * kernel**2, 1.0, False)
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        return layer

    def deconv(self, inputs: int, outputs: int, kernel: int, stride: int, padding: int = 0) -> nn.ConvTranspose2d:
        """A transposed convolution."""
        layer = nn.ConvTranspose2d(inputs, outputs, kernel, stride, padding)
        self._fill(layer.weight, inputs * kernel**2, outputs * kernel**2, 1.0, False)
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        return layer

    def tail(self, size: int) -> nn.Sequential:
        """What follows a linear layer: normalisation and activation."""
        norms: dict[str, type[nn.Module]] = {"rms": RMSNorm, "layer": LayerNorm}
        parts = [norms[self.norm](size)] if self.norm in norms else []
        return nn.Sequential(*parts, ACTIVATIONS[self.activation]())

    def dense(self, inputs: int, outputs: int) -> nn.Sequential:
        """A linear layer with its tail."""
        return nn.Sequential(self.linear(inputs, outputs), *self.tail(outputs))

    def mlp(self, inputs: int, units: int, layers: int) -> nn.Sequential:
        """Several dense layers."""
        sizes = [inputs] + [units] * layers
        return nn.Sequential(*(part for i, o in pairwise(sizes) for part in self.dense(i, o)))

    @torch.no_grad()
    def _fill(self, weight: Tensor, inputs: int, outputs: int, scale: float, last: bool) -> None:
        if scale == 0:
            weight.zero_()
        elif self.init == "glorot" or (self.init == "fan_avg" and last):
            bound = math.sqrt(6 / (inputs + outputs))
            weight.uniform_(-bound, bound).mul_(scale if self.init == "glorot" else math.sqrt(scale))
        else:
            fan = inputs if self.init == "fan_in" else (inputs + outputs) / 2
            nn.init.trunc_normal_(weight, 0.0, 1.0, -2.0, 2.0)
            weight.mul_(TRUNCATED * scale / math.sqrt(fan))
