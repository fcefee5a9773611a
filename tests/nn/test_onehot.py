"""One-hot choices: unimix everywhere, straight-through gradients, frequencies."""

import math

import pytest
import torch

from reverie.nn.onehot import OneHot

LOGITS = torch.tensor([[3.0, 0.0, -2.0], [-40.0, 0.0, 40.0]])


def mixture(logits, unimix):
    return (1 - unimix) * logits.softmax(-1) + unimix / logits.shape[-1]


@pytest.mark.parametrize("unimix", [0.0, 0.01, 0.3])
def test_log_probability_and_entropy_are_of_the_mixture(unimix):
    dist, probs = OneHot(LOGITS, unimix), mixture(LOGITS.double(), unimix)
    for k in range(3):
        expected = probs[:, k].log().float()
        torch.testing.assert_close(dist.logp(torch.eye(3)[[k, k]]), expected)
    entropy = -torch.special.xlogy(probs, probs).sum(-1).float()
    torch.testing.assert_close(dist.entropy(), entropy)
    torch.testing.assert_close(dist.divergence(), math.log(3) - entropy)


@pytest.mark.parametrize("unimix", [0.0, 0.3])
def test_samples_follow_the_mixture(unimix):
    count = 40_000
    dist = OneHot(LOGITS[:, None].expand(2, count, 3), unimix)
    drawn = dist.sample(dist.noise(torch.Generator().manual_seed(0)))
    assert set(drawn.unique().tolist()) == {0.0, 1.0} and (drawn.sum(-1) == 1).all()
    torch.testing.assert_close(drawn.mean(1), mixture(LOGITS, unimix), atol=0.01, rtol=0)


def test_the_generator_decides():
    dist = OneHot(torch.zeros(50, 4))
    draws = [dist.sample(dist.noise(torch.Generator().manual_seed(seed))) for seed in (3, 3, 4)]
    assert (draws[0] == draws[1]).all() and (draws[0] != draws[2]).any()


@pytest.mark.parametrize("unimix", [0.0, 0.2])
def test_straight_through_is_the_gradient_of_the_probabilities(unimix):
    logits = LOGITS.clone().requires_grad_()
    weight = torch.tensor([[1.0, -2.0, 5.0], [0.5, 3.0, -1.0]])
    dist = OneHot(logits, unimix)
    drawn = dist.rsample(dist.noise(torch.Generator().manual_seed(1)))
    assert torch.equal(drawn.detach(), dist.sample(dist.noise(torch.Generator().manual_seed(1))))
    (ours,) = torch.autograd.grad((drawn * weight).sum(), logits)
    (expected,) = torch.autograd.grad((mixture(logits, unimix) * weight).sum(), logits)
    torch.testing.assert_close(ours, expected)
    assert not dist.sample(dist.noise(torch.Generator())).requires_grad


def test_the_mode_is_the_likeliest_class():
    assert OneHot(LOGITS, 0.01).mode().tolist() == [[1, 0, 0], [0, 0, 1]]


def test_groups_are_choices_of_their_own():
    logits = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    both, left, right = OneHot(logits, 0.1, 2), OneHot(logits[:, :3], 0.1), OneHot(logits[:, 3:], 0.1)
    drawn = both.sample(both.noise(torch.Generator().manual_seed(0)))
    assert drawn.shape == (5, 6)
    torch.testing.assert_close(both.logp(drawn), left.logp(drawn[:, :3]) + right.logp(drawn[:, 3:]))
    torch.testing.assert_close(both.entropy(), left.entropy() + right.entropy())
    torch.testing.assert_close(both.divergence(), left.divergence() + right.divergence())
    assert torch.equal(both.mode(), torch.cat([left.mode(), right.mode()], -1))
