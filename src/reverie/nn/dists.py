"""Distributions of actions: sample, mode, log-probability, entropy.

Samples are made of noise from a generator, which is saved and restored with the agent.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor


class Dist(Protocol):
    """What a policy head answers with."""

    def noise(self, generator: torch.Generator) -> Tensor: ...
    def sample(self, noise: Tensor) -> Tensor: ...
    def mode(self) -> Tensor: ...
    def logp(self, action: Tensor) -> Tensor: ...
    def entropy(self) -> Tensor: ...


class Categorical:
    """One choice among K, from logits (..., K)."""

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = logits.float().log_softmax(-1)

    def noise(self, generator: torch.Generator) -> Tensor:
        """Uniform numbers (..., 1), of which a sample is made."""
        return torch.rand((*self.log_probs.shape[:-1], 1), generator=generator, device=self.log_probs.device)

    def sample(self, noise: Tensor) -> Tensor:
        """Class numbers, int64 (...)."""
        # how many classes lie below a uniform number: a third of the time of torch.multinomial
        total = self.log_probs.exp().cumsum(-1)
        return (total < noise * total[..., -1:]).sum(-1)

    def mode(self) -> Tensor:
        """The likeliest class."""
        return self.log_probs.argmax(-1)

    def logp(self, action: Tensor) -> Tensor:
        """Log-probability of class numbers (...)."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Entropy in nats (...)."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)


class MultiCategorical:
    """Several independent choices, from logits (..., K1 + K2 + ...)."""

    def __init__(self, logits: Tensor, sizes: tuple[int, ...]) -> None:
        self.parts = [Categorical(part) for part in logits.split(sizes, -1)]

    def noise(self, generator: torch.Generator) -> Tensor:
        """Uniform numbers (..., choices)."""
        return torch.cat([part.noise(generator) for part in self.parts], -1)

    def sample(self, noise: Tensor) -> Tensor:
        """Class numbers, int64 (..., choices)."""
        return torch.stack([part.sample(noise[..., i : i + 1]) for i, part in enumerate(self.parts)], -1)

    def mode(self) -> Tensor:
        """The likeliest class of each choice."""
        return torch.stack([part.mode() for part in self.parts], -1)

    def logp(self, action: Tensor) -> Tensor:
        """Log-probability of all choices together (...)."""
        return torch.stack([part.logp(action[..., i]) for i, part in enumerate(self.parts)]).sum(0)

    def entropy(self) -> Tensor:
        """Entropy of all choices together (...)."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


class Normal:
    """Independent Gaussians (..., A), unbounded; whoever plays the actions clips them at the environment's border."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean.float(), log_std.float()

    def noise(self, generator: torch.Generator) -> Tensor:
        """Standard normal numbers (..., A)."""
        return torch.randn(self.mean.shape, generator=generator, device=self.mean.device)

    def sample(self, noise: Tensor) -> Tensor:
        """Actions (..., A)."""
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> Tensor:
        """The mean."""
        return self.mean

    def logp(self, action: Tensor) -> Tensor:
        """Log-density of actions, summed over A."""
        scaled = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * scaled.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy in nats, summed over A."""
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).expand_as(self.mean).sum(-1)


class SideBySide:
    """Independent distributions over parts of one float vector (..., A), in which classes are numbers."""

    def __init__(self, parts: list[Dist]) -> None:
        self.parts = parts

    def noise(self, generator: torch.Generator) -> Tensor:
        """The noise of all parts side by side (..., A)."""
        return torch.cat([part.noise(generator) for part in self.parts], -1)

    def sample(self, noise: Tensor) -> Tensor:
        """Actions of all parts, float (..., A)."""
        pieces = noise.split([_width(part) for part in self.parts], -1)
        return self._joined([part.sample(piece) for part, piece in zip(self.parts, pieces)])

    def mode(self) -> Tensor:
        """The likeliest action of each part."""
        return self._joined([part.mode() for part in self.parts])

    def logp(self, action: Tensor) -> Tensor:
        """Log-probability of all parts together (...)."""
        pieces = action.split([_width(part) for part in self.parts], -1)
        return torch.stack([part.logp(_own(part, piece)) for part, piece in zip(self.parts, pieces)]).sum(0)

    def entropy(self) -> Tensor:
        """Entropy of all parts together (...)."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def _joined(self, actions: list[Tensor]) -> Tensor:
        columns = [x.unsqueeze(-1) if isinstance(part, Categorical) else x for part, x in zip(self.parts, actions)]
        return torch.cat([column.float() for column in columns], -1)


def _width(part: Dist) -> int:
    if isinstance(part, Normal):
        return part.mean.shape[-1]
    return len(part.parts) if isinstance(part, MultiCategorical) else 1


def _own(part: Dist, piece: Tensor) -> Tensor:
    """A piece of the vector as the actions of that part."""
    if isinstance(part, Normal):
        return piece
    return piece.long() if isinstance(part, MultiCategorical) else piece.squeeze(-1).long()
