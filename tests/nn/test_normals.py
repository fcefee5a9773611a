"""Normal and tanh-normal actions, against closed forms, fine grids and finite differences."""

import math

import pytest
import torch

from reverie.nn.normals import LOG1P, Gaussian, TanhNormal

CASES = [
    (0.0, 0.1),
    (0.0, 1.0),
    (0.7, 0.5),
    (-3.0, 0.2),
    (0.0, 5.0),
    (-4.0, 5.0),
    (1.0, 12.0),
    (4.9, 1e-3),
    (0.01, 3.0),
]


def tensors(mean, std, dtype=torch.float32):
    return torch.tensor([mean], dtype=dtype).requires_grad_(), torch.tensor([std], dtype=dtype).requires_grad_()


def log_slope(x):
    """log(1 - tanh(x)^2) in float64."""
    return 2 * (math.log(2) - x.abs() - torch.log1p((-2 * x.abs()).exp()))


def tanh_entropy(mean, std):
    """The entropy of tanh of a normal, from a fine grid in float64."""
    noise = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    density = (-0.5 * noise.square()).exp() / math.sqrt(2 * math.pi)
    slope = torch.trapezoid(density * log_slope(mean + std * noise), noise)
    return std.log() + 0.5 * math.log(2 * math.pi * math.e) + slope


@pytest.mark.parametrize(("mean", "std"), CASES)
def test_the_entropy_of_tanh_normal_and_its_gradient(mean, std):
    ours, reference = tensors(mean, std), tensors(mean, std, torch.float64)
    entropy, expected = TanhNormal(*ours).entropy(), tanh_entropy(*reference)
    assert entropy.item() == pytest.approx(expected.item(), abs=2e-5)
    gradients, wanted = torch.autograd.grad(entropy, ours), torch.autograd.grad(expected, reference)
    assert [g.item() for g in gradients] == pytest.approx([g.item() for g in wanted], rel=1e-4, abs=2e-5)


def test_the_entropy_of_tanh_normal_is_that_of_its_samples():
    mean, std = torch.full((200_000, 1), 0.4), torch.full((200_000, 1), 1.3)
    dist = TanhNormal(mean, std)
    surprise = -dist.logp(dist.sample(dist.noise(torch.Generator().manual_seed(0))))
    assert surprise.mean().item() == pytest.approx(dist.entropy()[0].item(), abs=0.01)
    assert Gaussian(mean, std).entropy()[0].item() > dist.entropy()[0].item() + 0.5


def test_the_polynomial_of_the_entropy():
    u = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    fit = sum(coefficient * u**k for k, coefficient in enumerate(LOG1P, 1))
    assert (fit - u.log1p()).abs().max() < 2e-7


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.1), (0.7, 0.5), (-3.0, 0.2), (0.0, 1.5), (-1.0, 2.0)])
def test_the_density_of_tanh_normal(mean, std):
    actions = torch.linspace(-1, 1, 400_001, dtype=torch.float64)[1:-1]
    x = actions.atanh()
    expected = -0.5 * ((x - mean) / std).square() - math.log(std * math.sqrt(2 * math.pi)) - log_slope(x)
    ours = TanhNormal(torch.tensor([mean]), torch.tensor([std])).logp(actions.float().unsqueeze(-1))
    middle = actions.abs() < 0.99  # float32 knows actions near the bounds less well
    torch.testing.assert_close(ours.double()[middle], expected[middle], rtol=1e-3, atol=1e-3)
    inside = actions.abs() < 0.9999
    assert torch.trapezoid(ours.double().exp()[inside], actions[inside]).item() == pytest.approx(
        torch.trapezoid(expected.exp()[inside], actions[inside]).item(), abs=1e-3
    )


def test_actions_at_the_very_bounds_have_finite_log_density_and_gradients():
    mean, std = tensors(2.0, 5.0)
    logp = TanhNormal(mean, std).logp(torch.tensor([[1.0], [-1.0]]))
    assert logp.isfinite().all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(logp.sum(), (mean, std)))


@pytest.mark.parametrize(("mean", "std"), [(0.5, 0.3), (-0.5, 0.3), (0.0, 0.6), (2.0, 0.4), (0.3, 0.7), (0.1, 0.71)])
def test_the_mode_of_tanh_normal_is_the_top_of_its_density(mean, std):
    dist = TanhNormal(torch.tensor([mean]), torch.tensor([std]))
    x = torch.linspace(-8, 8, 160_001, dtype=torch.float64)
    best = x[(-0.5 * ((x - mean) / std).square() - log_slope(x)).argmax()].tanh()
    assert dist.mode().item() == pytest.approx(best.item(), abs=2e-4)


def test_wide_tanh_normals_have_their_mode_at_a_bound():
    dist = TanhNormal(torch.tensor([0.2, -0.2]), torch.tensor([5.0, 5.0]))
    assert dist.mode().tolist() == [1.0, -1.0]


@pytest.mark.parametrize("kind", [Gaussian, TanhNormal])
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 0.5), (-0.9, 0.1)])
def test_gradients_of_samples_with_fixed_noise(kind, mean, std):
    def draw(mean, std):
        return kind(mean, std).rsample(kind(mean, std).noise(torch.Generator().manual_seed(7)))

    mean, std = tensors(mean, std)
    drawn, step = draw(mean, std), 1e-3
    ours = torch.autograd.grad(drawn, (mean, std))
    expected = (draw(mean + step, std) - draw(mean - step, std), draw(mean, std + step) - draw(mean, std - step))
    for gradient, difference in zip(ours, expected):
        torch.testing.assert_close(gradient, difference.detach() / (2 * step), rtol=5e-3, atol=1e-3)
    assert torch.equal(drawn.detach(), kind(mean, std).sample(kind(mean, std).noise(torch.Generator().manual_seed(7))))
    assert not kind(mean, std).sample(kind(mean, std).noise(torch.Generator())).requires_grad


def test_gaussians_agree_with_torch():
    generator = torch.Generator().manual_seed(0)
    mean, std = torch.randn(6, 3, generator=generator), torch.rand(6, 3, generator=generator) + 0.1
    ours, theirs = Gaussian(mean, std), torch.distributions.Normal(mean, std)
    x = ours.sample(ours.noise(generator))
    torch.testing.assert_close(ours.logp(x), theirs.log_prob(x).sum(-1))
    torch.testing.assert_close(ours.entropy(), theirs.entropy().sum(-1))
    standard = torch.distributions.Normal(torch.zeros(6, 3), torch.ones(6, 3))
    expected = torch.distributions.kl_divergence(theirs, standard).sum(-1)
    torch.testing.assert_close(ours.divergence(), expected)
    torch.testing.assert_close(TanhNormal(mean, std).divergence(), expected)
    torch.testing.assert_close(ours.mode(), mean)
