"""Independent normals truncated to [-1, 1], right also for means far outside and for tiny deviations.

Everything is worked out in float64, on the side of the nearer bound: with y = sign(mean) x and u = 1 - y the distance
from that bound, densities are taken relative to the one at the bound, so that no tail underflows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.special import erfcx, ndtr, ndtri

ROOT_TWO = math.sqrt(2.0)
ROOT_TAU = math.sqrt(2 * math.pi)
TAIL_STEPS = 6
"""Newton steps to a quantile of the tail; they at least double the right digits each time."""


class TruncatedNormal:
    """Normals of that mean and std, given that all numbers lie in [-1, 1].

    Samples are drawn faster without `tails`, which only means outside of [-1, 1] need.
    """

    def __init__(self, mean: Tensor, std: Tensor, tails: bool = True) -> None:
        self.mean, self.tails = mean, tails
        # float32 would lose the gradients to cancellation; these tensors are small
        mean, self.std = mean.double(), std.double()
        self.sign = torch.where(mean < 0, -1.0, 1.0)
        self.centre = self.sign * mean
        self.near = (1 - self.centre) / self.std  # where the bounds lie, in standard deviations from the mean
        self.far = (1 + self.centre) / self.std
        # torch.where and not relu, which has no gradient at a mean of exactly 1, to which tanh rounds
        inside = self.near >= 0
        self.inner = torch.where(inside, self.near, 0.0)
        self.outer = torch.where(inside, 0.0, -self.near)
        self.fall = (-2 * self.centre / self.std.square()).exp()  # density at the far bound by that at the near one
        within = torch.erf(self.inner / ROOT_TWO) + torch.erf(self.far / ROOT_TWO)
        beyond = erfcx(self.outer / ROOT_TWO) - self.fall * erfcx(self.far / ROOT_TWO)
        self.mass = 0.5 * torch.where(inside, within, beyond)  # times exp(-outer^2 / 2), the normal's share of [-1, 1]

    def noise(self, generator: torch.Generator) -> Tensor:
        """Standard normal numbers (..., A), of which a sample is made."""
        return torch.randn(self.mean.shape, generator=generator, device=self.mean.device)

    def sample(self, noise: Tensor) -> Tensor:
        """Actions (..., A)."""
        return self.rsample(noise).detach()

    def rsample(self, noise: Tensor) -> Tensor:
        """Actions with the gradient of the quantile function, by implicit differentiation of the distribution's."""
        with torch.no_grad():
            share = ndtr(noise.double())
            depth = self._depth(share)
            at_near = (1 - share) * (0.5 * depth * (depth - 2 * self.near)).exp()
            z = self.near - depth
            at_far = share * (0.5 * (z - self.far) * (z + self.far)).exp()
            by_centre = 1 - at_near - at_far
            by_std = self.near * (1 - at_near) - depth + at_far * self.far
            y = (1 - self.std * depth).clamp(-1, 1)
        y = y + by_centre * (self.centre - self.centre.detach()) + by_std * (self.std - self.std.detach())
        return (self.sign * y).float()

    def _depth(self, share: Tensor) -> Tensor:
        """How many standard deviations from the near bound there is that share of the mass."""
        left = ndtr(self.inner) - share * self.mass
        depth = self.near - ndtri(left.clamp(min=0))
        if self.tails:
            depth = torch.where(self.near >= 0, depth, self._tail_depth(share))
        return torch.minimum(depth.clamp(min=0), 2 / self.std)

    def _tail_depth(self, share: Tensor) -> Tensor:
        """The same for means outside: where the normal's tail beyond the near bound has fallen by exp(-goal)."""
        start = self.outer
        whole = erfcx(start / ROOT_TWO)
        goal = -torch.log1p(-share * (2 * self.mass / whole).clamp(max=1))
        # the tail's hazard rises with depth, so that Newton's method comes down to the root from any depth beyond it,
        # such as the one where the Gaussian factor alone has fallen that far
        depth = 2 * goal / (start + (start.square() + 2 * goal).sqrt()).clamp(min=1e-300)
        for _ in range(TAIL_STEPS):
            left = erfcx((start + depth) / ROOT_TWO)
            excess = depth * (start + 0.5 * depth) - (left / whole).log() - goal
            depth = depth - excess * left * (ROOT_TAU / 2)
        return depth

    def mode(self) -> Tensor:
        """The mean, or the bound next to it."""
        return self.mean.float().clamp(-1, 1)

    def logp(self, vector: Tensor) -> Tensor:
        """Log-density, summed over A; numbers beyond the bounds are taken for the bounds."""
        depth = (1 - self.sign * vector.double().clamp(-1, 1)) / self.std
        square = torch.where(self.near >= 0, (self.near - depth).square(), depth * (depth - 2 * self.near))
        return (-0.5 * square - (self.std * self.mass * ROOT_TAU).log()).sum(-1).float()

    def entropy(self) -> Tensor:
        """Entropy in nats, summed over A."""
        at_near = (-0.5 * self.inner.square()).exp() / (ROOT_TAU * self.mass)
        at_far = at_near * self.fall
        square = 1 - self.far * at_far - self.inner * at_near + self.outer * (at_near - self.outer)
        return (0.5 * square + (self.std * self.mass * ROOT_TAU).log()).sum(-1).float()

    def divergence(self) -> Tensor:
        """KL to the uniform distribution on [-1, 1], summed over A."""
        return self.mean.shape[-1] * math.log(2) - self.entropy()
