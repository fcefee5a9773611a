"""Truncated normals, against formulas worked out with eighty digits."""

import math
from functools import partial

import mpmath
import pytest
import torch

from reverie.nn.truncated import TruncatedNormal

CASES = [
    (0.0, 0.5),
    (0.3, 0.1),
    (-0.9, 2.1),
    (1.0, 0.5),  # where tanh rounds to
    (-1.0, 0.01),
    (-1.5, 0.3),
    (5.0, 2.0),
    (0.2, 1e-4),
    (1.0001, 1e-3),
    (0.1, 30.0),
    (50.0, 0.1),
    (-50.0, 0.1),
]


class Exact:
    """The same distribution in many digits, mirrored so that the mean is positive: only that tail is worked out."""

    def __init__(self, mean, std):
        self.sign = -1 if mean < 0 else 1
        self.mean, self.std = abs(mpmath.mpf(mean)), mpmath.mpf(std)

    def share(self, mean, std, x=1):
        """The normal's share between -1 and x."""
        low, high = ((bound - mean) / (std * mpmath.sqrt(2)) for bound in (-1, x))
        return (mpmath.erfc(-high) - mpmath.erfc(-low)) / 2

    def log_density(self, x, mean, std):
        return -(((x - mean) / std) ** 2) / 2 - mpmath.log(std * mpmath.sqrt(2 * mpmath.pi) * self.share(mean, std))

    def entropy(self, mean, std):
        low, high = ((bound - mean) / std for bound in (-1, 1))
        edge = low * mpmath.npdf(low) - high * mpmath.npdf(high)
        share = self.share(mean, std)
        return mpmath.log(mpmath.sqrt(2 * mpmath.pi * mpmath.e) * std * share) + edge / (2 * share)

    def quantile(self, share, start, mean, std):
        """Where that share lies below."""

        def logs(y):
            return mpmath.log(self.share(mean, std, y)) - mpmath.log(self.share(mean, std)) - mpmath.log(share)

        return mpmath.findroot(logs, (start, start - std / 1000))

    def with_slopes(self, function):
        """The value of a function of mean and std, and its slopes along both."""
        by_mean = mpmath.diff(lambda m: function(m, self.std), self.mean)
        by_std = mpmath.diff(lambda s: function(self.mean, s), self.std)
        return [float(function(self.mean, self.std)), float(self.sign * by_mean), float(by_std)]


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(80):
        yield


def parameters(mean, std):
    mean, std = (torch.tensor([number]).requires_grad_() for number in (mean, std))
    return mean, std, Exact(mean.item(), std.item())


def with_slopes(value, mean, std):
    return [value.item()] + [slope.item() for slope in torch.autograd.grad(value, (mean, std))]


@pytest.mark.parametrize(("mean", "std"), CASES)
def test_log_density_and_its_gradients(mean, std):
    mean, std, exact = parameters(mean, std)
    for seed in range(3):
        dist = TruncatedNormal(mean, std)
        x = dist.sample(dist.noise(torch.Generator().manual_seed(seed)))
        y = exact.sign * mpmath.mpf(x.item())
        expected = exact.with_slopes(partial(exact.log_density, y))
        assert with_slopes(dist.logp(x), mean, std) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("mean", "std"), CASES)
def test_entropy_and_its_gradients(mean, std):
    mean, std, exact = parameters(mean, std)
    dist = TruncatedNormal(mean, std)
    expected = exact.with_slopes(exact.entropy)
    assert with_slopes(dist.entropy(), mean, std) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert dist.divergence().item() == pytest.approx(math.log(2) - expected[0], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("mean", "std"), CASES)
def test_samples_are_quantiles_and_so_are_their_gradients(mean, std):
    mean, std, exact = parameters(mean, std)
    for seed in range(3):
        noise = torch.randn(1, generator=torch.Generator().manual_seed(seed))
        x = TruncatedNormal(mean, std).rsample(noise)
        beyond = mpmath.ncdf(noise.item())  # the share of the mass beyond the sample, on the side of the nearer bound
        mirrored = partial(exact.quantile, 1 - beyond, exact.sign * x.item())
        value, by_mean, by_std = (exact.sign * number for number in exact.with_slopes(mirrored))
        assert x.item() == pytest.approx(value, abs=1e-7)
        assert with_slopes(x, mean, std)[1:] == pytest.approx([by_mean, by_std], rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.5), (0.9, 0.8), (-1.4, 0.3), (6.0, 0.1)])
def test_samples_are_as_surprising_as_the_entropy_says(mean, std):
    dist = TruncatedNormal(torch.full((100_000, 1), mean), torch.full((100_000, 1), std))
    drawn = dist.sample(dist.noise(torch.Generator().manual_seed(0)))
    assert drawn.dtype == torch.float32 and (drawn.abs() <= 1).all() and not drawn.requires_grad
    assert -dist.logp(drawn).mean().item() == pytest.approx(dist.entropy()[0].item(), abs=0.02)


@pytest.mark.parametrize("mean", [-50.0, -1.0, 0.0, 0.4, 1.0, 50.0])
@pytest.mark.parametrize("std", [1e-6, 0.1, 2.1, 1e3])
def test_nothing_is_ever_infinite(mean, std):
    mean, std = torch.full((500, 2), mean).requires_grad_(), torch.full((500, 2), std).requires_grad_()
    dist = TruncatedNormal(mean, std)
    drawn = dist.rsample(dist.noise(torch.Generator().manual_seed(0)))
    results = [drawn, dist.logp(drawn.detach()), dist.entropy(), dist.mode()]
    assert all(result.isfinite().all() for result in results)
    for result in results:
        slopes = torch.autograd.grad(result.sum(), (mean, std), retain_graph=True, allow_unused=True)
        assert all(slope is None or slope.isfinite().all() for slope in slopes)


def test_dimensions_add_up_and_the_mode_stays_inside():
    mean, std = torch.tensor([[0.3, -4.0, 1.0]]), torch.tensor([[0.2, 0.5, 1.0]])
    dist = TruncatedNormal(mean, std)
    parts = [TruncatedNormal(mean[:, [i]], std[:, [i]]) for i in range(3)]
    x = dist.sample(dist.noise(torch.Generator().manual_seed(0)))
    torch.testing.assert_close(dist.logp(x), sum(part.logp(x[:, [i]]) for i, part in enumerate(parts)))
    torch.testing.assert_close(dist.entropy(), sum(part.entropy() for part in parts))
    torch.testing.assert_close(dist.divergence(), sum(part.divergence() for part in parts))
    assert torch.equal(dist.mode(), torch.tensor([[0.3, -1.0, 1.0]]))


def test_means_inside_need_no_tails():
    mean, std = torch.tensor([[0.3, -1.0, 1.0]]), torch.tensor([[0.2, 0.5, 1.0]])
    left, right = (
        TruncatedNormal(mean, std, tails).sample(
            TruncatedNormal(mean, std, tails).noise(torch.Generator().manual_seed(0))
        )
        for tails in (True, False)
    )
    assert torch.equal(left, right)
