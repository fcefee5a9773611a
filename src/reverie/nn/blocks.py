"""Layers that the networks are made of."""

from __future__ import annotations

import math

from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> nn.Module:
    """The layer with orthogonal weights of that gain and zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def mlp(inputs: int, units: int, layers: int, activation: str) -> nn.Sequential:
    """Hidden layers from `inputs` to `units` features."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [orthogonal(nn.Linear(inputs, units), math.sqrt(2)), ACTIVATIONS[activation]()]
        inputs = units
    return nn.Sequential(*parts)


def one_hot(x: Tensor, classes: int) -> Tensor:
    """Class numbers (...) as float vectors (..., classes)."""
    return nn.functional.one_hot(x.long(), classes).float()
