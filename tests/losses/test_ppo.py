"""PPO's losses, against the worked examples of its guide and formulas written out."""

import math

import pytest
import torch

from reverie.losses import ppo


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_clipped_objective_of_the_mario_example():
    # probability 0.2 -> 0.3 is a ratio of 1.5; the advantage of 50 counts as 1.2 * 50
    loss = ppo.policy_loss(t(math.log(0.3)), t(math.log(0.2)), t(50.0), 0.2)
    torch.testing.assert_close(loss, t(-60.0))


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.5, 1, -1.2), (1.1, 1, -1.1), (0.5, 1, -0.5), (0.5, -1, 0.8), (0.9, -1, 0.9), (1.5, -1, 1.5)],
)
def test_all_sides_of_the_clip(ratio, advantage, expected):
    loss = ppo.policy_loss(t(math.log(ratio)), t(0.0), t(advantage), 0.2)
    torch.testing.assert_close(loss, t(expected))


@pytest.mark.parametrize(
    ("ratio", "advantage", "flows"), [(1.5, 1, False), (0.5, -1, False), (1.5, -1, True), (0.5, 1, True)]
)
def test_gradient_stops_only_where_the_clip_holds(ratio, advantage, flows):
    logp = t(math.log(ratio)).requires_grad_()
    ppo.policy_loss(logp, t(0.0), t(advantage), 0.2).sum().backward()
    assert (logp.grad.abs().sum() > 0) == flows


def test_value_loss_of_the_mario_example():
    torch.testing.assert_close(ppo.value_loss(t(100.0), t(100.0), t(50.0), 0.0), t(2500.0))


def test_value_clip_changes_the_gradient():
    for clip, flows in ((0.0, True), (0.2, False)):
        value = t(1.0).requires_grad_()
        # the value moved from 0 to 1 towards the target 0.1 and beyond: unclipped error 0.81, clipped (0.2 - 0.1)^2
        ppo.value_loss(value, t(0.0), t(0.1), clip).sum().backward()
        assert value.grad.item() == pytest.approx(1.8)
        value = t(0.5).requires_grad_()
        ppo.value_loss(value, t(0.0), t(1.0), clip).sum().backward()
        assert (value.grad.item() != 0) == flows


def test_kl_estimator_is_exact_in_expectation_and_never_negative():
    old, new = t(0.2, 0.3, 0.5), t(0.4, 0.35, 0.25)
    estimate = ppo.approx_kl(new.log(), old.log())
    assert (estimate >= 0).all()
    exact = (old * (old.log() - new.log())).sum()
    torch.testing.assert_close((old * estimate).sum(), exact)


def test_clip_fraction_counts_ratios_outside_the_range():
    ratio = t(0.7, 0.85, 1.0, 1.19, 1.21)
    torch.testing.assert_close(ppo.clip_fraction(ratio.log(), t(0.0).expand(5), 0.2), torch.tensor([1.0, 0, 0, 0, 1]))


def test_explained_variance():
    target, every = t(1.0, 2.0, 3.0), torch.ones(3, dtype=torch.float64)
    assert ppo.explained_variance(target, target, every).item() == pytest.approx(1.0)
    assert ppo.explained_variance(t(2.0, 2.0, 2.0), target, every).item() == pytest.approx(0.0)
    assert ppo.explained_variance(t(3.0, 2.0, 1.0), target, every).item() == pytest.approx(-3.0)
    assert ppo.explained_variance(target, t(5.0, 5.0, 5.0), every).item() == 0.0
    weight = t(1.0, 1.0, 0.0)
    assert ppo.explained_variance(t(1.0, 2.0, 99.0), target, weight).item() == pytest.approx(1.0)


def test_normalised_advantages_ignore_rows_without_weight():
    got = ppo.normalized(t(1.0, 2.0, 3.0, 1e6), t(1.0, 1.0, 1.0, 0.0))
    torch.testing.assert_close(got[:3], t(-1.0, 0.0, 1.0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("value_clip", [0.0, 0.3])
def test_the_written_out_gradient_equals_autograd(value_clip):
    generator = torch.Generator().manual_seed(0)
    batch = {
        key: torch.randn(200, generator=generator, dtype=torch.float64) for key in ("advantage", "target", "value")
    }
    batch["logp"] = torch.randn(200, generator=generator, dtype=torch.float64) * 0.3 - 1
    batch["weight"] = (torch.rand(200, generator=generator) > 0.2).double()
    inputs = [torch.randn(200, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]
    inputs[0].data.mul_(0.3).sub_(1)
    logp, entropy, value = inputs
    ours = ppo.Objective.apply(*inputs, batch, 0.2, value_clip)
    terms = [
        ppo.policy_loss(logp, batch["logp"], batch["advantage"], 0.2),
        ppo.value_loss(value, batch["value"], batch["target"], value_clip),
        entropy,
        ppo.approx_kl(logp, batch["logp"]),
        ppo.clip_fraction(logp, batch["logp"], 0.2).double(),
    ]
    plain = torch.stack([(term * batch["weight"]).sum() / batch["weight"].sum() for term in terms])
    torch.testing.assert_close(ours, plain)
    assert 0.1 < plain[4] < 0.9
    scale = torch.tensor([1.0, 0.5, -0.01, 0.0, 0.0], dtype=torch.float64)
    gradients = [torch.autograd.grad((means * scale).sum(), inputs) for means in (ours, plain)]
    for mine, other in zip(*gradients):
        torch.testing.assert_close(mine, other)
        assert other.abs().sum() > 0
