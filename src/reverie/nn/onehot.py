"""Choices among classes as one-hot vectors, with a straight-through gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .blocks import one_hot


class OneHot:
    """`groups` choices among as many classes each, as one-hot vectors side by side, from logits (..., G * K).

    `unimix` is the share of a uniform distribution mixed in; samples, log-probability and entropy are of the mixture.
    """

    def __init__(self, logits: Tensor, unimix: float = 0.0, groups: int = 1) -> None:
        logits = logits.float().unflatten(-1, (groups, -1))  # (..., G, K)
        self.classes = logits.shape[-1]
        self.log_probs = logits.log_softmax(-1)
        self.probs = self.log_probs.exp()
        if unimix:
            self.probs = (1 - unimix) * self.probs + unimix / self.classes
            self.log_probs = self.probs.log()

    def noise(self, generator: torch.Generator) -> Tensor:
        """Uniform numbers (..., G), of which a sample is made."""
        return torch.rand(self.probs.shape[:-1], generator=generator, device=self.probs.device)

    def sample(self, noise: Tensor) -> Tensor:
        """One-hot vectors (..., G * K)."""
        total = self.probs.detach().cumsum(-1)
        return one_hot((total < noise.unsqueeze(-1) * total[..., -1:]).sum(-1), self.classes).flatten(-2)

    def rsample(self, noise: Tensor) -> Tensor:
        """One-hot vectors with the gradient of the probabilities (straight-through)."""
        return self.sample(noise) + (self.probs - self.probs.detach()).flatten(-2)

    def mode(self) -> Tensor:
        """The likeliest class of each choice."""
        return one_hot(self.probs.argmax(-1), self.classes).flatten(-2)

    def logp(self, vector: Tensor) -> Tensor:
        """Log-probability of all choices together."""
        return (vector * self.log_probs.flatten(-2)).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy of all choices together."""
        return -(self.probs * self.log_probs).sum((-2, -1))

    def divergence(self) -> Tensor:
        """KL to uniform choices."""
        return self.log_probs.shape[-2] * math.log(self.classes) - self.entropy()
