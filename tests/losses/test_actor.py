"""Losses of an actor, by hand."""

import torch

from reverie.losses.actor import arrival_weight, mixed, reinforce, survival

CONT = torch.tensor([[0.9, 0.0], [0.5, 0.9], [0.8, 1.0]])


def test_a_trajectory_counts_with_the_start_s_own_discount():
    torch.testing.assert_close(survival(CONT), torch.tensor([[0.9, 0.0], [0.45, 0.0], [0.36, 0.0]]))


def test_where_values_include_their_reward_a_state_counts_before_its_own_discount():
    torch.testing.assert_close(arrival_weight(CONT), torch.tensor([[1.0, 1.0], [0.9, 0.0], [0.45, 0.0]]))


def test_reinforce_has_the_gradient_of_the_log_probability_alone():
    logp = torch.tensor([-1.0, -2.0], requires_grad=True)
    advantage = torch.tensor([3.0, -0.5], requires_grad=True)
    objective = reinforce(logp, advantage)
    assert objective.tolist() == [-3.0, 1.0]
    objective.sum().backward()
    assert logp.grad.tolist() == [3.0, -0.5] and advantage.grad is None


def test_mixtures():
    through, score = torch.tensor([10.0]), torch.tensor([1.0])
    assert mixed(through, score, 1.0) == 10 and mixed(through, score, 0.0) == 1
    torch.testing.assert_close(mixed(through, score, 0.1), torch.tensor([1.9]))
