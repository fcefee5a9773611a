"""Latents: what the stochastic state is drawn from. `params` describe a distribution, `stoch` is a draw as a vector."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ..config.dreamer import WorldConfig


class Latent(Protocol):
    """A family of distributions."""

    outputs: int
    """Width of the network output that describes a distribution."""
    size: int
    """Width Z of a draw."""

    def params(self, outputs: Tensor) -> Tensor: ...
    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor: ...
    def sample(self, params: Tensor, noise: Tensor) -> Tensor: ...
    def mode(self, params: Tensor) -> Tensor: ...
    def kl(self, left: Tensor, right: Tensor) -> Tensor: ...
    def entropy(self, params: Tensor) -> Tensor: ...
    def pack(self, stoch: Tensor) -> Tensor: ...
    def unpack(self, packed: Tensor) -> Tensor: ...


class Categorical:
    """S independent choices among K classes; params are log-probabilities (..., S, K), draws one-hot (..., S K)."""

    def __init__(self, groups: int, classes: int, unimix: float) -> None:
        self.groups, self.classes, self.unimix = groups, classes, unimix
        self.outputs = self.size = groups * classes

    def params(self, outputs: Tensor) -> Tensor:
        """Log-probabilities (..., S, K) with the uniform distribution mixed in."""
        logits = outputs.float().reshape(*outputs.shape[:-1], self.groups, self.classes)
        if self.unimix == 0:
            return logits.log_softmax(-1)
        return torch.log((1 - self.unimix) * logits.softmax(-1) + self.unimix / self.classes)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Uniform numbers, one for each choice (..., S, 1)."""
        return torch.rand((*shape, self.groups, 1), generator=generator, device=generator.device)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """A draw, with the gradient of the probabilities (straight-through)."""
        prob = params.exp()
        total = prob.detach().cumsum(-1)
        classes = (total < noise * total[..., -1:]).sum(-1)
        return self._straight(F.one_hot(classes, self.classes).float(), prob)

    def mode(self, params: Tensor) -> Tensor:
        """The likeliest classes, with the gradient of the probabilities."""
        return self._straight(F.one_hot(params.argmax(-1), self.classes).float(), params.exp())

    def _straight(self, one_hot: Tensor, prob: Tensor) -> Tensor:
        if prob.requires_grad:
            one_hot = one_hot + (prob - prob.detach())
        return one_hot.flatten(-2)

    def kl(self, left: Tensor, right: Tensor) -> Tensor:
        """Divergence of left from right, summed over the choices (...)."""
        return (left.exp() * (left - right)).sum((-2, -1))

    def entropy(self, params: Tensor) -> Tensor:
        """Entropy in nats, summed over the choices (...)."""
        return -(params.exp() * params).sum((-2, -1))

    def pack(self, stoch: Tensor) -> Tensor:
        """Class numbers (..., S), one byte each where that is enough."""
        kind = torch.uint8 if self.classes <= 256 else torch.int16
        return stoch.reshape(*stoch.shape[:-1], self.groups, self.classes).argmax(-1).to(kind)

    def unpack(self, packed: Tensor) -> Tensor:
        """The one-hot draw (..., S K) of class numbers."""
        return F.one_hot(packed.long(), self.classes).float().flatten(-2)


class Gaussian:
    """Independent normal variables; params are means and deviations side by side (..., 2 Z)."""

    def __init__(self, size: int, std: str, min_std: float) -> None:
        self.size, self.outputs, self.min_std = size, 2 * size, min_std
        self.positive = F.softplus if std == "softplus" else twice_sigmoid

    def params(self, outputs: Tensor) -> Tensor:
        """Means and deviations (..., 2 Z)."""
        mean, std = outputs.float().chunk(2, -1)
        return torch.cat([mean, self.positive(std) + self.min_std], -1)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard normal numbers (..., Z)."""
        return torch.randn((*shape, self.size), generator=generator, device=generator.device)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """A draw, with its gradient."""
        mean, std = params.chunk(2, -1)
        return mean + std * noise

    def mode(self, params: Tensor) -> Tensor:
        """The means."""
        return params.chunk(2, -1)[0]

    def kl(self, left: Tensor, right: Tensor) -> Tensor:
        """Divergence of left from right, summed over the variables (...)."""
        (mean, std), (other_mean, other_std) = left.chunk(2, -1), right.chunk(2, -1)
        ratio, shift = (std / other_std).square(), ((mean - other_mean) / other_std).square()
        return 0.5 * (ratio + shift - 1 - ratio.log()).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        """Entropy in nats, summed over the variables (...)."""
        std = params.chunk(2, -1)[1]
        return (std.log() + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def pack(self, stoch: Tensor) -> Tensor:
        """The draw in half precision."""
        return stoch.bfloat16()

    def unpack(self, packed: Tensor) -> Tensor:
        """The draw in full precision."""
        return packed.float()


def twice_sigmoid(x: Tensor) -> Tensor:
    """Positive numbers below 2."""
    return 2 * torch.sigmoid(x / 2)


def make_latent(config: WorldConfig) -> Latent:
    """The family that the configuration asks for."""
    if config.latent == "categorical":
        return Categorical(config.groups, config.classes, config.unimix)
    return Gaussian(config.groups, config.std, config.min_std)
