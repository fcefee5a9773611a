"""Running statistics that live in a module's buffers, so that weights and statistics are saved together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import ranks


class RunningNorm(nn.Module):
    """Values to mean 0 and deviation 1 by the statistics of everything seen so far, cut at `limit`."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int, limit: float = 10.0) -> None:
        super().__init__()
        self.limit = limit
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("var", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(1e-4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """The normalised values."""
        scale = (self.var + 1e-8).rsqrt()
        return ((x - self.mean.float()) * scale.float()).clamp(-self.limit, self.limit)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Merge a batch (..., size) into the statistics (Chan et al.'s parallel form), unless it is not finite."""
        x = x.reshape(-1, x.shape[-1]).double()
        count = x.shape[0] * ranks.count()
        mean = ranks.average_(x.mean(0))
        delta = mean - self.mean
        total = self.count + count
        spread = self.var * self.count + ranks.average_((x - mean).square().mean(0)) * count
        var = (spread + delta.square() * self.count * count / total) / total
        finite = var.isfinite().all()  # nor is it where the mean is not
        for old, new in ((self.var, var), (self.mean, self.mean + delta * count / total), (self.count, total)):
            old.copy_(torch.where(finite, new, old))


class ReturnScale(nn.Module):
    """Rewards divided by the running deviation of the discounted return, cut at `limit`."""

    total: Tensor

    def __init__(self, envs: int, gamma: float, limit: float = 10.0) -> None:
        super().__init__()
        self.gamma, self.limit = gamma, limit
        self.stats = RunningNorm(1)
        self.register_buffer("total", torch.zeros(envs, dtype=torch.float64))

    @torch.no_grad()
    def forward(self, reward: Tensor, is_last: Tensor) -> Tensor:
        """Scaled rewards (T, N) of a rollout, after its returns have entered the statistics.

        Rewards that are not finite enter as 0: what has once become of them would stay in the sums forever.
        """
        earned = torch.where(reward.isfinite(), reward, 0.0)
        totals = torch.empty_like(reward, dtype=torch.float64)
        for t in range(reward.shape[0]):
            self.total.mul_(self.gamma).add_(earned[t])
            totals[t] = self.total
            self.total.mul_(~is_last[t])
        self.stats.update(totals.unsqueeze(-1))
        scale = (self.stats.var + 1e-8).rsqrt().float()
        return (reward * scale).clamp(-self.limit, self.limit)


class ReturnRange(nn.Module):
    """How far returns spread: the distance of two percentiles, followed by a running average, and at least 1."""

    at: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, low: float, high: float, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("at", torch.tensor([low / 100, high / 100]), persistent=False)
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))

    @torch.no_grad()
    def forward(self, returns: Tensor) -> Tensor:
        """The range as one number, after these returns have entered it; those that are not finite leave it."""
        found = torch.quantile(ranks.gathered(returns.detach().float().flatten()), self.at)
        finite = found.isfinite().all()
        for edge, new in zip((self.low, self.high), found):
            edge.copy_(torch.where(finite, edge.lerp(new, self.rate), edge))
        return self.range

    @property
    def range(self) -> Tensor:
        """The range as it stands."""
        return (self.high - self.low).clamp(min=1.0)


class RunningMean(nn.Module):
    """The mean of positive numbers, by a running average that is right from its first batch on."""

    total: Tensor
    weight: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("total", torch.zeros(()))
        self.register_buffer("weight", torch.zeros(()))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """The mean, after these numbers have entered it; those that are not finite leave it."""
        found = ranks.average_(x.detach().float().mean())
        finite = found.isfinite()
        for part, new in ((self.total, found), (self.weight, torch.ones_like(found))):
            part.copy_(torch.where(finite, part.lerp(new, self.rate), part))
        return self.mean

    @property
    def mean(self) -> Tensor:
        """The mean as it stands; 0 before anything was seen."""
        return self.total / self.weight.clamp(min=1e-8)
