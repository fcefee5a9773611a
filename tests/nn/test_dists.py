"""Distributions of actions, against torch's own and worked examples."""

import pytest
import torch

from reverie.nn.dists import Categorical, MultiCategorical, Normal


def test_entropy_of_the_mario_policies():
    even = torch.tensor([0.15, 0.17, 0.14, 0.13, 0.16, 0.12, 0.13])
    peaked = torch.tensor([0.02, 0.85, 0.08, 0.02, 0.01, 0.01, 0.01])
    assert Categorical(even.log()).entropy().item() == pytest.approx(-(even * even.log()).sum().item(), abs=1e-6)
    assert Categorical(even.log()).entropy().item() == pytest.approx(1.94, abs=0.01)
    assert Categorical(peaked.log()).entropy().item() == pytest.approx(0.635, abs=0.01)


def test_categorical_agrees_with_torch():
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    action = torch.arange(5)
    ours, theirs = Categorical(logits), torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(ours.logp(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert (ours.mode() == logits.argmax(-1)).all()


def test_samples_follow_the_probabilities_and_the_generator():
    dist = Categorical(torch.tensor([0.1, 0.2, 0.7]).log().expand(20_000, 3))
    one = dist.sample(dist.noise(torch.Generator().manual_seed(3)))
    assert (one == dist.sample(dist.noise(torch.Generator().manual_seed(3)))).all()
    assert (one != dist.sample(dist.noise(torch.Generator().manual_seed(4)))).any()
    shares = torch.bincount(one, minlength=3) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.2, 0.7]), atol=0.02, rtol=0)


def test_choices_add_up():
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    dist = MultiCategorical(logits, (2, 3))
    action = torch.tensor([[0, 2], [1, 1], [0, 0], [1, 2]])
    left, right = Categorical(logits[:, :2]), Categorical(logits[:, 2:])
    torch.testing.assert_close(dist.logp(action), left.logp(action[:, 0]) + right.logp(action[:, 1]))
    torch.testing.assert_close(dist.entropy(), left.entropy() + right.entropy())
    assert dist.sample(dist.noise(torch.Generator())).shape == dist.mode().shape == (4, 2)


def test_normal_agrees_with_torch():
    generator = torch.Generator().manual_seed(0)
    mean, log_std = torch.randn(6, 3, generator=generator), torch.randn(3, generator=generator)
    ours = Normal(mean, log_std)
    theirs = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    action = ours.sample(ours.noise(generator))
    torch.testing.assert_close(ours.logp(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    torch.testing.assert_close(ours.mode(), mean)
