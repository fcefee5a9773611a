"""Distributions of continuous actions (..., A), every dimension by itself: normal, squashed by tanh, truncated.

All take mean and standard deviation. `rsample` carries the gradient of a sample with its noise held fixed; `divergence`
is the KL to what an uninformed policy would do.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
ROOT_TWO = math.sqrt(2.0)


class Gaussian:
    """Independent normals, unbounded; whoever plays the actions clips them at the environment's border."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.mean, self.std = mean.float(), std.float()

    def noise(self, generator: torch.Generator) -> Tensor:
        """Standard normal numbers (..., A), of which a sample is made."""
        return torch.randn(self.mean.shape, generator=generator, device=self.mean.device)

    def sample(self, noise: Tensor) -> Tensor:
        """Actions (..., A)."""
        return self.rsample(noise).detach()

    def rsample(self, noise: Tensor) -> Tensor:
        """Actions with the gradient of mean + std * noise."""
        return self.mean + self.std * noise

    def mode(self) -> Tensor:
        """The mean."""
        return self.mean

    def logp(self, vector: Tensor) -> Tensor:
        """Log-density, summed over A."""
        return self._log_density(vector).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy in nats, summed over A."""
        return (self.std.log() + HALF_LOG_TAU + 0.5).sum(-1)

    def divergence(self) -> Tensor:
        """KL to the standard normal, summed over A."""
        return (0.5 * (self.mean.square() + self.std.square() - 1) - self.std.log()).sum(-1)

    def _log_density(self, x: Tensor) -> Tensor:
        return -0.5 * ((x - self.mean) / self.std).square() - self.std.log() - HALF_LOG_TAU


LARGEST = 1 - 2.0**-24
"""The largest float32 below 1: what actions of exactly 1, which float32 rounds to, are taken for."""

LOG1P = (0.99999981, -0.49997449, 0.33276177, -0.24499612, 0.17757024, -0.10785368, 0.04421419, -0.00857468)
"""Coefficients of u, u^2, ... in a Chebyshev fit of log(1 + u) on [0, 1], wrong by 1.4e-7 at most."""

MODE_STEPS = 20


class TanhNormal(Gaussian):
    """tanh of independent normals of that mean and std. KL to a standard normal is the same before and after tanh."""

    def rsample(self, noise: Tensor) -> Tensor:
        """Actions with the gradient of tanh(mean + std * noise)."""
        return super().rsample(noise).tanh()

    def mode(self) -> Tensor:
        """The likeliest action, without gradient. Where two are, the positive one."""
        # the density of tanh(x) is largest where x = |mean| + 2 std^2 tanh(x): one root above 0, and Newton's method
        # comes down to it from any x beyond, as the function is convex there
        mean, slope = self.mean.detach().abs(), 2 * self.std.detach().square()
        x = mean + slope
        for _ in range(MODE_STEPS):
            t = x.tanh()
            x = x - (x - mean - slope * t) / (1 - slope * (1 - t * t)).clamp(min=1e-6)
        return torch.where(self.mean < 0, -x, x).tanh()

    def logp(self, vector: Tensor) -> Tensor:
        """Log-density, summed over A."""
        x = vector.float().clamp(-LARGEST, LARGEST).atanh()
        return (self._log_density(x) - 2 * (math.log(2) - x - softplus(-2 * x))).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy of the actions themselves, summed over A: that of the normal, and the expected log-slope of tanh.

        The log-slope is 2 (log 2 - |x| - log(1 + exp(-2 |x|))). With the last term as a polynomial in exp(-2 |x|), its
        expectation has a closed form for any mean and std; quadrature in x fails for std of 5, where Dreamer V1 starts.
        """
        mean, std = self.mean.abs(), self.std
        ratio = mean / std
        centre = (-0.5 * ratio.square()).exp()
        size = std * math.sqrt(2 / math.pi) * centre + mean * torch.erf(ratio / ROOT_TWO)
        rest = torch.zeros_like(mean)
        for k, coefficient in enumerate(LOG1P, 1):
            rest = rest + coefficient * expected_decay(mean, std, centre, 2.0 * k)
        slope = 2 * (math.log(2) - size - rest)
        return super().entropy() + slope.sum(-1)


def expected_decay(mean: Tensor, std: Tensor, centre: Tensor, rate: float) -> Tensor:
    """E[exp(-rate |x|)] of normals with mean >= 0; `centre` is exp(-mean^2 / 2 std^2)."""
    ratio, reach = mean / std, rate * std
    below = 0.5 * centre * torch.special.erfcx((reach + ratio) / ROOT_TWO)
    gap = reach - ratio
    near = gap >= 0
    # each form is only right, and only finite, on its own side
    above = 0.5 * centre * torch.special.erfcx(torch.where(near, gap, 0.0) / ROOT_TWO)
    far_gap, far_mean = torch.where(near, 0.0, gap), torch.where(near, 0.0, mean)
    far_reach = torch.where(near, 0.0, reach)
    far = (-rate * far_mean + 0.5 * far_reach.square()).exp() * torch.special.ndtr(-far_gap)
    return below + torch.where(near, above, far)
