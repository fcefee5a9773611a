"""Latents: draws, divergences and entropies against closed forms."""

import math

import numpy as np
import pytest
import torch

from reverie.config.dreamer import WorldConfig
from reverie.world.latent import Categorical, Gaussian, make_latent

OUTPUTS = torch.tensor([[2.0, 0.0, -1.0, 0.5, 0.5, 9.0], [-30.0, 0.0, 30.0, 1.0, 2.0, 3.0]])


def mixture(outputs, unimix):
    """Probabilities (..., 2, 3) in float64."""
    logits = outputs.double().numpy().reshape(*outputs.shape[:-1], 2, 3)
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    return (1 - unimix) * probs / probs.sum(-1, keepdims=True) + unimix / 3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("unimix", [0.01, 0.3])
def test_the_uniform_share_is_in_draws_divergence_and_entropy(unimix):
    latent = Categorical(2, 3, unimix)
    left, right = latent.params(OUTPUTS), latent.params(OUTPUTS.flip(0) * 0.5)
    p, q = mixture(OUTPUTS, unimix), mixture(OUTPUTS.flip(0) * 0.5, unimix)
    kl, entropy = (p * np.log(p / q)).sum((-2, -1)), -(p * np.log(p)).sum((-2, -1))
    torch.testing.assert_close(latent.kl(left, right).double(), torch.from_numpy(kl), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(latent.entropy(left).double(), torch.from_numpy(entropy), rtol=1e-4, atol=1e-5)
    count = 30_000
    drawn = latent.sample(left[:, None].expand(2, count, 2, 3), latent.noise((2, count), generator()))
    frequency = drawn.reshape(2, count, 2, 3).mean(1)
    torch.testing.assert_close(frequency, torch.from_numpy(p).float(), atol=0.01, rtol=0)


def test_draws_are_one_hot_and_independent():
    latent = Categorical(2, 3, 0.0)
    params = latent.params(torch.zeros(20_000, 6))
    drawn = latent.sample(params, latent.noise((20_000,), generator())).reshape(-1, 2, 3)
    assert set(drawn.unique().tolist()) == {0.0, 1.0} and (drawn.sum(-1) == 1).all()
    together = torch.einsum("bi,bj->ij", drawn[:, 0], drawn[:, 1]) / len(drawn)
    torch.testing.assert_close(together, torch.full((3, 3), 1 / 9), atol=0.01, rtol=0)


def test_the_largest_noise_still_draws_a_class():
    latent = Categorical(2, 3, 0.0)
    params = latent.params(OUTPUTS)
    for noise in (0.0, 1 - 2**-24):
        drawn = latent.sample(params, torch.full((2, 2, 1), noise)).reshape(2, 2, 3)
        assert (drawn.sum(-1) == 1).all()


@pytest.mark.parametrize("unimix", [0.0, 0.2])
@pytest.mark.parametrize("how", ["sample", "mode"])
def test_the_gradient_of_a_draw_is_that_of_its_probabilities(unimix, how):
    latent, weight = Categorical(2, 3, unimix), torch.randn(2, 6, generator=generator(1))
    logits = (OUTPUTS / 5).requires_grad_()
    params = latent.params(logits)
    drawn = latent.sample(params, torch.full((2, 2, 1), 0.7)) if how == "sample" else latent.mode(params)
    plain = latent.sample(params.detach(), torch.full((2, 2, 1), 0.7))
    assert torch.equal(drawn.detach(), plain) or how == "mode"
    (found,) = torch.autograd.grad((drawn * weight).sum(), logits)
    p = torch.softmax(logits.detach().double().reshape(2, 2, 3), -1)
    w = weight.double().reshape(2, 2, 3)
    expected = (1 - unimix) * p * (w - (p * w).sum(-1, keepdim=True))  # the Jacobian of softmax, by hand
    torch.testing.assert_close(found.double(), expected.reshape(2, 6), atol=1e-6, rtol=1e-4)


def test_mode_is_the_likeliest_class():
    latent = Categorical(2, 3, 0.01)
    assert latent.mode(latent.params(OUTPUTS)).tolist() == [[1, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 1]]


@pytest.mark.parametrize("classes, kind", [(3, torch.uint8), (300, torch.int16)])
def test_classes_packed_and_back(classes, kind):
    latent = Categorical(4, classes, 0.01)
    params = latent.params(torch.randn(2, 5, 4 * classes, generator=generator()))
    drawn = latent.sample(params, latent.noise((2, 5), generator()))
    packed = latent.pack(drawn)
    assert packed.dtype == kind and packed.shape == (2, 5, 4)
    assert torch.equal(latent.unpack(packed), drawn)


@pytest.mark.parametrize("std, positive", [("softplus", lambda x: math.log1p(math.exp(x))),
                                           ("sigmoid", lambda x: 2 / (1 + math.exp(-x / 2)))])  # fmt: skip
def test_gaussian_by_hand(std, positive):
    latent = Gaussian(2, std, 0.1)
    left, right = latent.params(torch.tensor([1.0, -2.0, 0.5, 3.0])), latent.params(torch.tensor([0.0, 1.0, -1.0, 0.2]))
    stds = [[positive(x) + 0.1 for x in pair] for pair in ((0.5, 3.0), (-1.0, 0.2))]
    torch.testing.assert_close(left, torch.tensor([1.0, -2.0, *stds[0]]))
    kl = entropy = 0.0
    for mean, a, other, b in zip((1.0, -2.0), stds[0], (0.0, 1.0), stds[1]):
        kl += math.log(b / a) + (a * a + (mean - other) ** 2) / (2 * b * b) - 0.5
        entropy += 0.5 * math.log(2 * math.pi * math.e * a * a)
    assert latent.kl(left, right).item() == pytest.approx(kl, rel=1e-5)
    assert latent.entropy(left).item() == pytest.approx(entropy, rel=1e-5)
    noise = torch.tensor([1.0, -1.0])
    torch.testing.assert_close(latent.sample(left, noise), torch.tensor([1.0 + stds[0][0], -2.0 - stds[0][1]]))
    assert latent.mode(left).tolist() == [1.0, -2.0]
    drawn = torch.tensor([[0.3, -2.0]])
    torch.testing.assert_close(latent.unpack(latent.pack(drawn)), drawn, rtol=1e-2, atol=0)


def test_gaussian_draws_have_their_mean_deviation_and_gradient():
    latent = Gaussian(1, "softplus", 0.1)
    outputs = torch.tensor([0.7, -1.0], requires_grad=True)
    noise = latent.noise((50_000,), generator())
    drawn = latent.sample(latent.params(outputs), noise)
    std = math.log1p(math.exp(-1)) + 0.1
    assert drawn.mean().item() == pytest.approx(0.7, abs=0.01) and drawn.std().item() == pytest.approx(std, rel=0.02)
    (slope,) = torch.autograd.grad(drawn[:10].sum(), outputs)
    sigmoid = 1 / (1 + math.exp(1))
    torch.testing.assert_close(slope, torch.stack([torch.tensor(10.0), noise[:10].sum() * sigmoid]))


def test_half_precision_outputs_are_worked_out_in_full():
    for latent in (Categorical(2, 3, 0.01), Gaussian(3, "softplus", 0.1)):
        params = latent.params(OUTPUTS.bfloat16())
        assert params.dtype == torch.float32
        assert latent.kl(params, params).abs().max() == 0
        assert latent.entropy(params).dtype == torch.float32


def test_the_configuration_chooses():
    assert isinstance(make_latent(WorldConfig(latent="gaussian", groups=5)), Gaussian)
    latent = make_latent(WorldConfig(groups=5, classes=7))
    assert isinstance(latent, Categorical) and latent.size == latent.outputs == 35
