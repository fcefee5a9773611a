"""Layers: how far their first weights spread, and what the norms do, against written-out formulas."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from reverie.nn.layers import BlockLinear, LayerNorm, Layers, RMSNorm


def spread(weight):
    """The deviation of initial weights around 0, and the largest of them."""
    flat = weight.detach().double().flatten()
    return flat.square().mean().sqrt().item(), flat.abs().max().item()


def assert_truncated(weight, fan):
    """Weights are a normal cut at two deviations, with deviation 1 / sqrt(fan) after the cut."""
    deviation, largest = spread(weight)
    assert deviation == pytest.approx(fan**-0.5, rel=0.03)
    # cut at two deviations of the uncut normal, which has 1.1368 of what is left
    assert 1.9 * 1.1368 * fan**-0.5 < largest <= 2.0001 * 1.1368 * fan**-0.5


@pytest.mark.parametrize("init, fan", [("fan_in", 100), ("fan_avg", 200)])
def test_linear_weights_spread_by_their_fan(init, fan):
    torch.manual_seed(0)
    layer = Layers(init=init).linear(100, 300)
    assert_truncated(layer.weight, fan)
    assert layer.bias.abs().max() == 0


def test_the_cut_normal_has_deviation_one():
    # variance of a standard normal cut at +-2: 1 - 2 * 2 * pdf(2) / (cdf(2) - cdf(-2))
    mass = math.erf(2 / math.sqrt(2))
    deviation = math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / mass)
    assert 1.1368 * deviation == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_last_layers_of_fan_avg_are_uniform_by_the_root_of_the_scale(scale):
    torch.manual_seed(0)
    weight = Layers(init="fan_avg").linear(100, 300, scale, last=True).weight
    bound = math.sqrt(3 * scale / 200)
    deviation, largest = spread(weight)
    assert deviation == pytest.approx(bound / math.sqrt(3), rel=0.03)
    assert 0.98 * bound < largest <= bound


@pytest.mark.parametrize("last", [False, True])
def test_glorot_weights_are_uniform(last):
    torch.manual_seed(0)
    weight = Layers(init="glorot").linear(100, 300, last=last).weight
    bound = math.sqrt(6 / 400)
    assert spread(weight)[0] == pytest.approx(bound / math.sqrt(3), rel=0.03)
    assert 0.98 * bound < spread(weight)[1] <= bound


@pytest.mark.parametrize("init", ["fan_in", "fan_avg", "glorot"])
def test_scales_shrink_and_zero_gives_zeros(init):
    make = Layers(init=init)
    x = torch.randn(5, 60)
    assert (make.linear(60, 7, 0.0, last=True)(x) == 0).all()
    torch.manual_seed(0)
    whole = spread(make.linear(60, 400).weight)[0]
    torch.manual_seed(0)
    assert spread(make.linear(60, 400, 0.01).weight)[0] == pytest.approx(0.01 * whole, rel=1e-4)


def test_block_weights_are_as_small_as_for_all_inputs_together():
    torch.manual_seed(0)
    layer = Layers().blocks(8, 25, 60)
    assert layer.weight.shape == (8, 25, 60)
    assert_truncated(layer.weight, 8 * 25)


def test_shares_of_one_layer_add_up_to_it():
    torch.manual_seed(0)
    shares = Layers().shares((30, 70), 200)
    for layer in shares:
        assert_truncated(layer.weight, 100)
    assert [layer.bias is not None for layer in shares] == [True, False]


def test_convolutions_count_the_kernel_in():
    torch.manual_seed(0)
    assert_truncated(Layers().conv(8, 60, 5).weight, 8 * 25)
    assert_truncated(Layers().deconv(8, 60, 4, 2).weight, 8 * 16)
    deviation = spread(Layers(init="fan_avg").conv(8, 60, 5).weight)[0]
    assert deviation == pytest.approx((34 * 25) ** -0.5, rel=0.03)


def test_blocks_do_not_see_each_other():
    layer = BlockLinear(2, 2, 3)
    weight = np.arange(12, dtype=np.float64).reshape(2, 2, 3)
    bias = np.array([[0.5, 1.0, 1.5], [-1.0, -2.0, -3.0]])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    x = np.array([[[1.0, 2.0], [3.0, -1.0]]])
    out = layer(torch.from_numpy(x).float()).detach().numpy()
    for g in range(2):
        for o in range(3):
            assert out[0, g, o] == x[0, g, 0] * weight[g, 0, o] + x[0, g, 1] * weight[g, 1, o] + bias[g, o]


def test_rms_norm_by_hand():
    norm = RMSNorm(2)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 10.0]))
    out = norm(torch.tensor([[3.0, 4.0]])).detach()
    root = math.sqrt((9 + 16) / 2 + 1e-4)
    torch.testing.assert_close(out, torch.tensor([[3 / root, 40 / root]]))
    # the epsilon is inside the root, and large enough that almost nothing stays almost nothing
    small = RMSNorm(2)(torch.tensor([[1e-3, -1e-3]])).detach()
    torch.testing.assert_close(small[0, 0].item(), 1e-3 / math.sqrt(1e-6 + 1e-4))


def test_layer_norm_by_hand():
    out = LayerNorm(4)(torch.tensor([[1.0, 2.0, 3.0, 6.0]])).detach()
    root = math.sqrt((4 + 1 + 0 + 9) / 4 + 1e-3)
    torch.testing.assert_close(out, torch.tensor([[-2 / root, -1 / root, 0.0, 3 / root]]))


@pytest.mark.parametrize("kind", [RMSNorm, LayerNorm])
def test_norms_of_half_precision_are_worked_out_in_full(kind):
    x = (torch.randn(3, 512, generator=torch.Generator().manual_seed(0)) * 300).bfloat16()
    norm = kind(512)
    out = norm(x)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, norm(x.float()).bfloat16())


def test_tails_and_depth_of_an_mlp():
    kinds = [type(part) for part in Layers("layer", "elu").mlp(3, 5, 2)]
    assert kinds == [nn.Linear, LayerNorm, nn.ELU] * 2
    assert [type(part) for part in Layers("none", "relu").tail(4)] == [nn.ReLU]
    assert len(Layers().mlp(3, 5, 0)) == 0


def test_the_gradients_of_rms_norms_are_those_of_their_formula():
    torch.manual_seed(0)
    norm, x, goal = RMSNorm(6), torch.randn(4, 5, 6, requires_grad=True), torch.randn(4, 5, 6)
    norm.weight.data.normal_()
    formula = x * (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt() * norm.weight
    assert norm(x).grad_fn.name() != formula.grad_fn.name()  # or this would compare the formula with itself
    torch.testing.assert_close(norm(x), formula)
    found, expected = (torch.autograd.grad(y, (x, norm.weight), goal) for y in (norm(x), formula))
    torch.testing.assert_close(found, expected)
