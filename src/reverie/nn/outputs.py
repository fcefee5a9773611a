"""What the outputs of a head mean: each answers `pred` (the expected value) and `loss` (of a target)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..config.errors import UserError

LIMIT = 20.0
"""Two-hot bins reach from minus to plus symexp of this."""


def symlog(x: Tensor) -> Tensor:
    """Logarithm of the magnitude plus one, with the sign of x."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of symlog."""
    return x.sign() * x.abs().expm1()


class Number(nn.Module):
    """What outputs for one number have alike."""

    size: int

    def pred(self, x: Tensor) -> Tensor:
        """The expected number (...)."""
        raise NotImplementedError

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of a target (...)."""
        raise NotImplementedError

    def loss_of_both(self, x: Tensor, target: Tensor, other: Tensor, scale: float) -> Tensor:
        """The loss of a target and, scaled, of another one (...)."""
        return self.loss(x, target) + scale * self.loss(x, other)


class Normal(Number):
    """A number, as the mean of a Gaussian with deviation 1."""

    size = 1

    def pred(self, x: Tensor) -> Tensor:
        """The mean (...)."""
        return x.squeeze(-1).float()

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        """Half the squared error (...)."""
        return 0.5 * (self.pred(x) - target).square()


class Bernoulli(Number):
    """A probability."""

    size = 1

    def pred(self, x: Tensor) -> Tensor:
        """The probability (...)."""
        return x.squeeze(-1).float().sigmoid()

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy with a probability (...)."""
        return F.binary_cross_entropy_with_logits(x.squeeze(-1).float(), target, reduction="none")


class Squares:
    """A vector, by its squared errors summed up; in symlog space where that is asked for."""

    def __init__(self, size: int, squash: bool) -> None:
        self.size, self.squash = size, squash

    def pred(self, x: Tensor) -> Tensor:
        """The vector (..., size)."""
        return symexp(x.float()) if self.squash else x.float()

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        """Squared errors, summed (...)."""
        return (x.float() - (symlog(target) if self.squash else target)).square().sum(-1)


class Classes:
    """Several classes, from logits side by side."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes, self.size = sizes, sum(sizes)

    def pred(self, x: Tensor) -> Tensor:
        """Probabilities (..., size)."""
        return torch.cat([part.softmax(-1) for part in x.float().split(self.sizes, -1)], -1)

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy with one-hot targets (..., size), summed (...)."""
        logp = torch.cat([part.log_softmax(-1) for part in x.float().split(self.sizes, -1)], -1)
        return -(logp * target).sum(-1)


class TwoHot(Number):
    """A number, as a distribution over bins; a target falls on its two nearest bins.

    With `raw` the bins lie at symexp of even distances and the mean is taken over them, otherwise they lie even in
    symlog space and the mean is taken there (the form of 2023).
    """

    edges: Tensor

    def __init__(self, bins: int = 255, raw: bool = True) -> None:
        super().__init__()
        if bins % 2 == 0:
            raise UserError(f"--world.bins {bins} is even: give an odd number, so that one of the bins is zero")
        self.size, self.raw = bins, raw
        half = torch.linspace(-LIMIT, 0, bins // 2 + 1, dtype=torch.float64)
        half = (symexp(half) if raw else half).float()
        self.register_buffer("edges", torch.cat([half, -half[:-1].flip(0)]), persistent=False)

    def pred(self, x: Tensor) -> Tensor:
        """The expected number (...)."""
        prob, middle = x.float().softmax(-1), self.size // 2
        # mirrored bins are subtracted first: an even distribution must give exactly 0, and bins reach 5e8
        mirrored = prob[..., middle + 1 :] - prob[..., :middle].flip(-1)
        mean = (mirrored * self.edges[middle + 1 :]).sum(-1)
        return mean if self.raw else symexp(mean)

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy with the two-hot target (...)."""
        return self.cross_entropy(x.float(), *self.spread(target))

    def loss_of_both(self, x: Tensor, target: Tensor, other: Tensor, scale: float) -> Tensor:
        """The loss of a target and, scaled, of another one (...), with the logits' softmax taken once."""
        (bins, shares), (further, others) = self.spread(target), self.spread(other)
        return self.cross_entropy(x.float(), torch.cat([bins, further], -1), torch.cat([shares, scale * others], -1))

    def cross_entropy(self, x: Tensor, bins: Tensor, shares: Tensor) -> Tensor:
        """Cross-entropy (...) of logits (..., K) with the shares (..., n) that some bins have."""
        return cross_entropy(x, bins, shares)

    def spread(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """The two bins that a target (...) falls on and its shares there (..., 2)."""
        target = target if self.raw else symlog(target)
        below = (torch.bucketize(target.contiguous(), self.edges, right=True) - 1).clamp(0, self.size - 2)
        low, high = self.edges[below], self.edges[below + 1]
        share = ((target - low) / (high - low)).clamp(0, 1)
        return torch.stack([below, below + 1], -1), torch.stack([1 - share, share], -1)


def cross_entropy(x: Tensor, classes: Tensor, shares: Tensor) -> Tensor:
    """Cross-entropy (...) of logits (..., K) with the shares (..., n) that some classes have."""
    if x.is_cuda or torch.compiler.is_compiling():
        return -(x.log_softmax(-1).gather(-1, classes) * shares).sum(-1)
    return SparseCrossEntropy.apply(x, classes, shares)


class SparseCrossEntropy(torch.autograd.Function):
    """The same with a gradient that is made in place, where torch would add up one of zeros for each class."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, classes: Tensor, shares: Tensor) -> Tensor:
        """The cross-entropy (...)."""
        logp = x.log_softmax(-1)
        ctx.save_for_backward(logp, classes, shares)
        return -(logp.gather(-1, classes) * shares).sum(-1)

    @staticmethod
    def backward(ctx: Any, *goals: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of the logits."""
        logp, classes, shares = ctx.saved_tensors
        weights = goals[0].unsqueeze(-1) * shares
        gradient = logp.exp().mul_(weights.sum(-1, keepdim=True))
        return gradient.scatter_add_(-1, classes, -weights), None, None


def make_output(kind: str, bins: int) -> Normal | TwoHot:
    """The output of that name, for a number."""
    return Normal() if kind == "normal" else TwoHot(bins, raw=kind == "symexp_twohot")
