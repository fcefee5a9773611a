"""Running statistics, against the statistics of all data at once."""

import torch

from reverie.nn.scale import ReturnScale, RunningNorm


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
