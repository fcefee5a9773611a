"""Running statistics, against the statistics of all data at once."""

import numpy as np
import pytest
import torch

from reverie.nn.scale import ReturnRange, ReturnScale, RunningMean, RunningNorm


def test_merged_batches_equal_one_pass():
    data = torch.randn(300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 7
    norm = RunningNorm(4)
    for part in data.split([10, 90, 200]):
        norm.update(part)
    torch.testing.assert_close(norm.mean, data.mean(0), atol=1e-4, rtol=0)
    torch.testing.assert_close(norm.var, data.var(0, unbiased=False), atol=1e-3, rtol=0)
    out = norm(data.float())
    torch.testing.assert_close(out.mean(0), torch.zeros(4), atol=1e-3, rtol=0)
    torch.testing.assert_close(out.std(0), torch.ones(4), atol=1e-2, rtol=0)
    assert norm(torch.full((1, 4), 1e9)).max() == 10


def test_statistics_are_saved_with_the_weights():
    norm, other = RunningNorm(2), RunningNorm(2)
    norm.update(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    other.load_state_dict(norm.state_dict())
    torch.testing.assert_close(norm(torch.ones(2)), other(torch.ones(2)))


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    scale = ReturnScale(1, gamma=0.5)
    reward = torch.tensor([[1.0], [1.0], [1.0], [0.0], [2.0]])
    last = torch.tensor([[False], [False], [True], [False], [False]])
    out = scale(reward, last)
    totals = torch.tensor([1.0, 1.5, 1.75, 0.0, 2.0])  # the sum starts anew behind the episode's end
    torch.testing.assert_close(out.squeeze(1), reward.squeeze(1) / totals.std(unbiased=False), atol=1e-3, rtol=1e-3)


def test_the_range_of_returns_starts_at_zero_and_is_updated_before_it_is_used():
    """No correction for the start: after one batch only a hundredth of its percentiles has entered."""
    rng = np.random.default_rng(0)
    low = high = 0.0
    scale = ReturnRange(5, 95, 0.01)
    assert scale.low == scale.high == 0 and scale.range == 1
    for size in (1000.0, 5000.0, 20.0):
        returns = rng.normal(size=(15, 8)) * size + 100
        low = 0.99 * low + 0.01 * np.percentile(returns, 5)
        high = 0.99 * high + 0.01 * np.percentile(returns, 95)
        found = scale(torch.from_numpy(returns).float())
        assert found.item() == pytest.approx(max(1.0, high - low), rel=1e-4)
        assert found == scale.range


def test_the_range_is_never_below_one_and_follows_the_spread_not_the_level():
    scale = ReturnRange(5, 95, 1.0)
    assert scale(torch.full((4, 4), 500.0)) == 1
    assert scale(torch.linspace(500, 510, 101)).item() == pytest.approx(9.0, rel=1e-4)


def test_the_range_is_saved_and_a_batch_that_is_not_finite_leaves_it():
    scale, other = ReturnRange(5, 95, 0.5), ReturnRange(5, 95, 0.5)
    before = scale(torch.linspace(0, 100, 101)).clone()
    other.load_state_dict(scale.state_dict())
    assert other.range == before
    spoiled = torch.linspace(0, 100, 101)
    for bad in (torch.nan, torch.inf):
        spoiled[3] = bad
        scale(spoiled)
        assert scale.range.isfinite()
    spoiled[:] = torch.nan
    scale(spoiled)
    assert scale(torch.linspace(0, 100, 101)).isfinite()


def test_the_running_mean_is_right_from_the_first_batch_on_and_leaves_out_what_is_not_finite():
    mean = RunningMean(0.1)
    assert mean.mean == 0
    assert mean(torch.tensor([1.0, 3.0])) == pytest.approx(2.0)
    assert mean(torch.tensor([torch.nan, 1.0])) == pytest.approx(2.0)
    # weights 0.1 and 0.09 of the newest and the one before it
    assert mean(torch.tensor([4.0])) == pytest.approx((0.1 * 4 + 0.09 * 2) / 0.19)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_batch_that_is_not_finite_leaves_the_norm(bad):
    norm, other = RunningNorm(2), RunningNorm(2)
    batch = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    for each in (norm, other):
        each.update(batch)
    norm.update(torch.tensor([[1.0, bad], [0.0, 0.0]]))
    for each in (norm, other):
        each.update(batch + 1)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_reward_that_is_not_finite_counts_nothing_in_the_scale(bad):
    scale, other = ReturnScale(1, gamma=0.5), ReturnScale(1, gamma=0.5)
    reward, last = torch.tensor([[1.0], [0.0], [2.0]]), torch.zeros(3, 1, dtype=torch.bool)
    scale(torch.tensor([[1.0], [bad], [2.0]]), last)
    other(reward, last)
    torch.testing.assert_close(scale(reward, last), other(reward, last), rtol=0, atol=0)
