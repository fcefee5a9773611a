"""Dense layers as programs: the same outputs and gradients as torch."""

import copy
import pickle

import pytest
import torch
from torch import nn

from reverie.nn.layers import Layers
from reverie.nn.native.layered import FEW, Layered
from reverie.nn.native.machine import Unfit

pytestmark = pytest.mark.usefixtures("c_compiler")


def made(norm, last):
    torch.manual_seed(0)
    ends = [nn.Linear(24, 5)] if last else []
    layers = nn.Sequential(Layers(norm).mlp(9, 24, 2), *ends)
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    return layers


def results(layers, x, by):
    layers.zero_grad()
    x.grad = None
    found = layers(x)
    (found * by).sum().backward()
    return {"outputs": found, "inputs": x.grad} | {name: each.grad for name, each in layers.named_parameters()}


def assert_same(layers, lead, asked=True):
    x = (4 * torch.randn(*lead, 9)).requires_grad_(asked)
    by = torch.randn(*lead, layers(x).shape[-1])
    expected = results(layers, x, by)
    layers.forward = Layered(layers, layers)
    found = results(layers, x, by)
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, name
        else:
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4, msg=name)
    return found


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_other_activations(activation, threads):
    torch.manual_seed(0)
    assert_same(nn.Sequential(nn.Linear(9, 24), activation(), nn.Linear(24, 7), activation()), (13, 17))


@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e-3, 0.1, 0.19, 0.21, 1.0, 30.0])
def test_tangents_are_as_exact_for_small_numbers(size):
    layers = nn.Sequential(nn.Linear(9, 9, bias=False), nn.Tanh())
    layers[0].weight.data.copy_(torch.eye(9))
    x = size * (2 * torch.rand(200, 9) - 1)
    expected = layers(x).detach()
    layers.forward = Layered(layers, layers)
    torch.testing.assert_close(layers(x), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("norm", ["rms", "layer", "none"])
@pytest.mark.parametrize("last", [True, False])
def test_outputs_and_gradients(norm, last, threads):
    assert_same(made(norm, last), (13, 17))


def test_only_the_gradients_that_are_asked_for():
    assert assert_same(made("rms", True), (100,), asked=False)["inputs"] is None
    found = assert_same(made("rms", True).requires_grad_(False), (100,))
    assert found["0.0.weight"] is None and found["inputs"] is not None


def test_only_the_gradient_of_what_was_run_counts():
    layers = made("rms", True)
    layers.forward = Layered(layers, layers)
    x = torch.randn(100, 9)
    kept, _ = layers(x), layers(2 * x)
    kept.sum().backward()
    found = [each.grad.clone() for each in layers.parameters()]
    del layers.forward
    layers.zero_grad()
    layers(x).sum().backward()
    for one, two in zip(found, layers.parameters()):
        torch.testing.assert_close(one, two.grad, rtol=1e-4, atol=1e-4)


def test_few_rows_and_acting_run_as_they_are():
    layers = made("rms", True)
    layered = Layered(layers, layers)
    x = torch.randn(FEW, 9)
    assert layered(x).grad_fn.name() == "DifferentiableBackward"
    assert layered(x[1:]).grad_fn.name() != "DifferentiableBackward"
    assert layered(x.double().float()[:0]).shape == (0, 5)
    with torch.no_grad():
        assert torch.equal(layered(x), layers(x))


def test_copies_run_by_themselves():
    layers, x = made("rms", True), torch.randn(100, 9)
    layers.forward = Layered(layers, layers)
    for other in (copy.deepcopy(layers), pickle.loads(pickle.dumps(layers))):
        assert other(x).grad_fn.name() != "DifferentiableBackward"
        nn.init.zeros_(other[1].weight)
        assert not torch.equal(other(x), layers(x))
    assert layers(x).grad_fn.name() == "DifferentiableBackward"


def test_layers_whose_way_back_does_not_fit_are_refused_at_once():
    """They have 900,000 weights there and twice as many back; a cache holds a million."""
    layers = nn.Sequential(nn.Linear(1000, 900))
    with pytest.raises(Unfit, match="its 1,800,000 weights do not fit"):
        Layered(layers, layers)
