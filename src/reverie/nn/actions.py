"""Actions for world models: the vectors they are coded as, and the distributions a policy draws such vectors from.

Rows keep actions as environments take them: class numbers, or numbers between the bounds of a Box. World models take
float vectors (..., A): one-hot classes, and numbers scaled to [-1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..config.errors import UserError
from ..envs.form import action_space
from ..envs.joint import Joint, parts_of
from .blocks import one_hot
from .normals import Gaussian, TanhNormal
from .onehot import OneHot
from .truncated import TruncatedNormal


class ActionCode(nn.Module):
    """Between the actions of a space, as rows keep them, and vectors of width `size`."""

    def __init__(self, space: spaces.Space) -> None:
        super().__init__()
        space = action_space(space)
        self.single, self.joint = isinstance(space, spaces.Discrete), isinstance(space, Joint)
        codes = [BoxCode(part) if isinstance(part, spaces.Box) else ClassCode(part) for part in parts_of(space)]
        self.parts: Sequence[BoxCode | ClassCode] = codes
        self.held = nn.ModuleList(codes)  # so that they move with this module
        self.widths, self.sizes = [part.width for part in codes], [part.size for part in codes]
        self.size = sum(self.sizes)

    def encode(self, action: Tensor) -> Tensor:
        """Vectors (..., A) of the actions of rows, (...) for a single choice, else (..., n)."""
        numbers = action.unsqueeze(-1) if self.single else action
        pieces = numbers.split(self.widths, -1)
        return torch.cat([part.encode(piece) for part, piece in zip(self.parts, pieces)], -1)

    def decode(self, vector: Tensor) -> Tensor:
        """The actions that vectors (..., A) stand for: the class of the largest entry, numbers at their own scale."""
        pieces = [part.decode(piece) for part, piece in zip(self.parts, vector.split(self.sizes, -1))]
        if self.joint:
            return torch.cat([piece.float() for piece in pieces], -1)
        return pieces[0].squeeze(-1) if self.single else pieces[0]

    def random(self, count: int, generator: torch.Generator) -> Tensor:
        """Uniform actions (count, ...): all classes alike, numbers between their bounds or else in [-1, 1]."""
        share = torch.rand(count, self.size, generator=generator, device=generator.device)
        return self.decode(2 * share - 1)


class ClassCode(nn.Module):
    """Class numbers (..., n) as one-hot vectors side by side."""

    def __init__(self, space: spaces.Space) -> None:
        super().__init__()
        self.classes = class_counts(space)
        self.width, self.size = len(self.classes), sum(self.classes)

    def encode(self, numbers: Tensor) -> Tensor:
        """One-hot vectors (..., K1 + K2 + ...)."""
        return torch.cat([one_hot(x, count) for x, count in zip(numbers.unbind(-1), self.classes)], -1)

    def decode(self, vector: Tensor) -> Tensor:
        """The number of the largest entry of each one-hot vector, int64 (..., n)."""
        return torch.stack([piece.argmax(-1) for piece in vector.split(self.classes, -1)], -1)


class BoxCode(nn.Module):
    """Numbers (..., n) scaled so that finite bounds become -1 and 1; others stay as they are."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.width = self.size = math.prod(space.shape)
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        finite = np.isfinite(low) & np.isfinite(high)
        middle = np.where(finite, (low + high) / 2, 0.0)
        scale = np.where(finite & (high > low), (high - low) / 2, 1.0)
        self.middle: Tensor
        self.scale: Tensor
        self.register_buffer("middle", torch.as_tensor(middle, dtype=torch.float32), persistent=False)
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float32), persistent=False)

    def encode(self, numbers: Tensor) -> Tensor:
        """The scaled numbers."""
        return (numbers.float() - self.middle) / self.scale

    def decode(self, vector: Tensor) -> Tensor:
        """The numbers at their own scale."""
        return vector * self.scale + self.middle


def class_counts(space: spaces.Space) -> tuple[int, ...]:
    """How many classes each choice of a discrete space has."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    assert isinstance(space, spaces.MultiDiscrete), space
    return tuple(int(n) for n in space.nvec)


class ActionDist(Protocol):
    """A distribution of coded actions (..., A); everything but noise, samples and the mode has shape (...)."""

    def noise(self, generator: torch.Generator) -> Tensor:
        """Random numbers of the shape and kind that a sample is made of."""

    def sample(self, noise: Tensor) -> Tensor:
        """Vectors without gradient."""

    def rsample(self, noise: Tensor) -> Tensor:
        """The same vectors with a gradient to what the distribution was made from."""

    def mode(self) -> Tensor:
        """The likeliest vectors."""

    def logp(self, vector: Tensor) -> Tensor:
        """The log-probability of vectors."""

    def entropy(self) -> Tensor:
        """The entropy of the vectors in nats."""

    def divergence(self) -> Tensor:
        """The KL to what a policy that knows nothing would do."""


class Product:
    """Independent distributions over parts of one vector."""

    def __init__(self, dists: Sequence[ActionDist], parts: Sequence[PolicyPart]) -> None:
        self.parts = dists
        self.sizes, self.draws = [part.size for part in parts], [part.draws for part in parts]

    def noise(self, generator: torch.Generator) -> Tensor:
        """The noise of all parts side by side."""
        return torch.cat([part.noise(generator) for part in self.parts], -1)

    def sample(self, noise: Tensor) -> Tensor:
        """Samples of all parts side by side."""
        pieces = noise.split(self.draws, -1)
        return torch.cat([part.sample(piece) for part, piece in zip(self.parts, pieces)], -1)

    def rsample(self, noise: Tensor) -> Tensor:
        """Samples of all parts, with their gradients."""
        pieces = noise.split(self.draws, -1)
        return torch.cat([part.rsample(piece) for part, piece in zip(self.parts, pieces)], -1)

    def mode(self) -> Tensor:
        """The modes of all parts side by side."""
        return torch.cat([part.mode() for part in self.parts], -1)

    def logp(self, vector: Tensor) -> Tensor:
        """Log-probability of all parts together."""
        pieces = vector.split(self.sizes, -1)
        return torch.stack([part.logp(piece) for part, piece in zip(self.parts, pieces)]).sum(0)

    def entropy(self) -> Tensor:
        """Entropy of all parts together."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def divergence(self) -> Tensor:
        """KL of all parts together."""
        return torch.stack([part.divergence() for part in self.parts]).sum(0)


Continuous = Literal["bounded_normal", "tanh_normal", "truncated_normal", "normal"]


@dataclass(frozen=True)
class Spread:
    """The standard deviations a policy may have."""

    min: float
    max: float = math.inf
    init: float = math.nan
    """The deviation at an output of 0, `min` not counted."""


def bounded_normal(mean: Tensor, spread: Tensor, limits: Spread) -> ActionDist:
    """A normal with its mean within the bounds (Dreamer V3); the environment clips what goes beyond."""
    return Gaussian(mean.tanh(), (limits.max - limits.min) * (spread + 2).sigmoid() + limits.min)


def tanh_normal(mean: Tensor, spread: Tensor, limits: Spread) -> ActionDist:
    """A normal squashed by tanh (Dreamer V1); its mean is kept where tanh still has a slope."""
    return TanhNormal(5 * (mean / 5).tanh(), positive(spread, limits))


def truncated_normal(mean: Tensor, spread: Tensor, limits: Spread) -> ActionDist:
    """A normal truncated at the bounds (Dreamer V2)."""
    std = (limits.max - limits.min) * (spread / 2).sigmoid() + limits.min
    return TruncatedNormal(mean.tanh(), std, tails=False)


def normal(mean: Tensor, spread: Tensor, limits: Spread) -> ActionDist:
    """A normal with any mean; the environment clips what goes beyond its bounds."""
    return Gaussian(mean, positive(spread, limits))


def positive(spread: Tensor, limits: Spread) -> Tensor:
    """Deviations above `limits.min`, through a softplus that starts at `limits.init`."""
    return softplus(spread + math.log(math.expm1(limits.init))) + limits.min


NORMALS: dict[str, tuple[Callable[[Tensor, Tensor, Spread], ActionDist], Spread]] = {
    "bounded_normal": (bounded_normal, Spread(0.1, 1.0)),
    "tanh_normal": (tanh_normal, Spread(1e-4, init=5.0)),
    "truncated_normal": (truncated_normal, Spread(0.1, 2.1)),
    "normal": (normal, Spread(0.1, init=1.0)),
}
"""Distributions of continuous actions, each with the deviations it has by default."""


class Policy:
    """From a network's outputs (..., `outputs`) to the distribution of the coded actions of a space.

    Standard deviations are the usual ones of the distribution unless they are given.
    """

    def __init__(
        self,
        space: spaces.Space,
        continuous: Continuous = "bounded_normal",
        unimix: float = 0.0,
        min_std: float | None = None,
        max_std: float | None = None,
        init_std: float | None = None,
    ) -> None:
        self.unimix = unimix
        self.make, usual = NORMALS[continuous]
        given = {"min": min_std, "max": max_std, "init": init_std}
        self.limits = replace(usual, **{name: value for name, value in given.items() if value is not None})
        if self.limits.max <= self.limits.min or self.limits.init == 0:
            raise UserError("--behavior.max_std must be above --behavior.min_std, and --behavior.init_std above 0")
        self.parts = [part for each in parts_of(action_space(space)) for part in policy_parts(each)]
        self.sizes = [size for part in self.parts for size in ([part.size] if part.groups else [part.size] * 2)]
        """Outputs of classes, means and deviations, which are networks' layers apart in truth."""
        self.outputs = sum(self.sizes)
        self.discrete = all(part.groups for part in self.parts)

    def __call__(self, outputs: Tensor) -> ActionDist:
        """The distribution at outputs (..., P)."""
        pieces = outputs.float().split([part.outputs for part in self.parts], -1)
        dists = [self._dist(part, piece) for part, piece in zip(self.parts, pieces)]
        return dists[0] if len(dists) == 1 else Product(dists, self.parts)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Random numbers (*shape, n) that samples of this policy are made of."""
        draws = [torch.rand if part.groups else torch.randn for part in self.parts]
        noises = [
            draw((*shape, part.draws), generator=generator, device=generator.device)
            for draw, part in zip(draws, self.parts)
        ]
        return torch.cat(noises, -1) if len(noises) > 1 else noises[0]

    def _dist(self, part: PolicyPart, outputs: Tensor) -> ActionDist:
        if part.groups:
            return OneHot(outputs, self.unimix, part.groups)
        mean, spread = outputs.chunk(2, -1)
        return self.make(mean, spread, self.limits)


@dataclass(frozen=True)
class PolicyPart:
    """A part of the coded action that has one distribution: `groups` choices, or continuous where that is 0."""

    size: int
    groups: int = 0

    @property
    def outputs(self) -> int:
        """How many outputs of the network it takes."""
        return self.size if self.groups else 2 * self.size

    @property
    def draws(self) -> int:
        """How many random numbers a sample takes."""
        return self.groups or self.size


def policy_parts(space: spaces.Space) -> list[PolicyPart]:
    """The parts of one action; neighbouring choices among as many classes go together, which is faster."""
    if isinstance(space, spaces.Box):
        return [PolicyPart(math.prod(space.shape))]
    runs = [(count, len(list(run))) for count, run in groupby(class_counts(space))]
    return [PolicyPart(count * groups, groups) for count, groups in runs]
