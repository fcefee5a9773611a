"""Returns, against numbers worked out by hand."""

import pytest
import torch

from reverie.losses.returns import arrival_return, lambda_return


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1)


def returns(reward, value, terminal, last, gamma=0.99, lam=0.95):
    discount = gamma * (1 - column(*terminal))
    trace = lam * (1 - column(*last))
    return lambda_return(column(*reward), column(*value), discount, trace).squeeze(1)


def test_mario_example_of_three_deltas():
    # rewards 1, 1, 1000 with values 100, 110, 120 and a real end: deltas 9.9, 9.8, 880
    value = [100.0, 110.0, 120.0, 777.0]
    got = returns([0, 1, 1, 1000], value, [0, 0, 0, 1], [0, 0, 0, 1]) - torch.tensor(value[:3], dtype=torch.float64)
    decay = 0.99 * 0.95
    deltas = [1 + 0.99 * 110 - 100, 1 + 0.99 * 120 - 110, 1000 - 120]
    assert deltas[2] == 880
    expected = [
        deltas[0] + decay * deltas[1] + decay**2 * deltas[2],
        deltas[1] + decay * deltas[2],
        deltas[2],
    ]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(got[0].item(), 797.52, atol=0.01, rtol=0)


def test_a_timeout_bootstraps_from_the_last_observation():
    got = returns([0, 1], [5.0, 10.0], [0, 0], [0, 1])
    torch.testing.assert_close(got, torch.tensor([1 + 0.99 * 10.0], dtype=torch.float64))


def test_a_real_end_does_not():
    got = returns([0, 1], [5.0, 10.0], [0, 1], [0, 1])
    torch.testing.assert_close(got, torch.tensor([1.0], dtype=torch.float64))


def test_nothing_flows_across_an_episode_end():
    value = [1.0, 2.0, 3.0, 4.0, 5.0]
    # row 2 is the last of one episode, row 3 the first of the next
    one = returns([0, 1, 1, 0, 7], value, [0] * 5, [0, 0, 1, 0, 0])
    two = returns([0, 1, 1, 0, -7], value, [0] * 5, [0, 0, 1, 0, 0])
    torch.testing.assert_close(one[:2], two[:2])
    assert one[3] != two[3]


def test_a_lost_life_cuts_the_return_inside_an_episode():
    # row 2 is terminal but not last: the reward that comes with it counts, nothing behind it does
    got = returns([0, 1, 2, 100, 100], [9.0] * 5, [0, 0, 1, 0, 0], [0] * 5, lam=1.0)
    torch.testing.assert_close(got[:2], torch.tensor([1 + 0.99 * 2, 2.0], dtype=torch.float64))


def test_lambda_one_is_the_discounted_sum_and_lambda_zero_one_step():
    reward, value = [0, 1, 2, 3], [0.5, 0.6, 0.7, 0.8]
    everything = returns(reward, value, [0] * 4, [0] * 4, gamma=0.9, lam=1.0)
    assert abs(everything[0].item() - (1 + 0.9 * 2 + 0.81 * 3 + 0.729 * 0.8)) < 1e-12
    one_step = returns(reward, value, [0] * 4, [0] * 4, gamma=0.9, lam=0.0)
    assert abs(one_step[0].item() - (1 + 0.9 * 0.6)) < 1e-12


REWARD, VALUE, CONT = column(1, 2, 4, 8), column(10, 20, 30, 40), column(0.5, 0.8, 0.0, 0.25)


def test_departure_begins_with_the_next_reward_and_the_next_discount():
    """Three steps by hand with lambda 0.5: the reward and discount of the first row do not count."""
    got = lambda_return(REWARD, VALUE, CONT, torch.full_like(CONT, 0.5)).flatten().tolist()
    third = 8 + 0.25 * 40
    second = 4 + 0.0 * (0.5 * 30 + 0.5 * third)
    first = 2 + 0.8 * (0.5 * 20 + 0.5 * second)
    assert got == pytest.approx([first, second, third]) == [11.6, 4.0, 18.0]


def test_arrival_begins_with_the_row_s_own_reward_and_discount():
    got = arrival_return(REWARD, VALUE, CONT, torch.full_like(CONT, 0.5)).flatten().tolist()
    third = 4 + 0.0 * 40
    second = 2 + 0.8 * (0.5 * 30 + 0.5 * third)
    first = 1 + 0.5 * (0.5 * 20 + 0.5 * second)
    assert got == pytest.approx([first, second, third]) == [9.9, 15.6, 4.0]


def test_both_give_as_many_returns_as_there_are_actions():
    for returned in (lambda_return, arrival_return):
        assert returned(REWARD, VALUE, CONT, CONT).shape == (3, 1)


def test_arrival_at_lambda_one_sums_rewards_and_ends_in_the_last_value():
    ones = torch.ones_like(CONT)
    got = arrival_return(REWARD, VALUE, 0.5 * ones, ones)
    assert got[0].item() == 1 + 0.5 * 2 + 0.25 * 4 + 0.125 * 40


def test_gradients_reach_rewards_values_and_discounts():
    parts = [x.clone().requires_grad_() for x in (REWARD, VALUE, CONT)]
    lambda_return(*parts, torch.full_like(CONT, 0.5))[0].backward()
    reward, value, cont = (x.grad.flatten().tolist() for x in parts)
    assert reward == [0.0, 1.0, 0.8 * 0.5, 0.0]  # the third discount is 0: nothing beyond it counts
    assert value == [0.0, 0.8 * 0.5, 0.0, 0.0]
    assert cont[:2] == [0.0, 0.5 * 20 + 0.5 * 4.0]
