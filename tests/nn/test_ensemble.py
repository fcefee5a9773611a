import pytest
import torch

from reverie.nn.ensemble import Ensemble
from reverie.nn.layers import Layers


@pytest.mark.parametrize("norm", ["rms", "layer", "none"])
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_each_member_is_a_network_of_its_own(norm, layers):
    torch.manual_seed(0)
    ensemble = Ensemble(Layers(norm), members=3, inputs=5, units=7, layers=layers, outputs=4)
    left, right = torch.randn(2, 6, 3), torch.randn(2, 6, 2)
    found = ensemble(left, right)
    assert found.shape == (3, 2, 6, 4)
    for member in range(3):
        torch.testing.assert_close(found[member], alone(ensemble, member, torch.cat([left, right], -1)))
    assert (found[0] - found[1]).abs().max() > 0.1


def alone(ensemble, member, x):
    """The same written out for one member."""
    weight, bias = (p.unflatten(0, (3, -1))[member] for p in (ensemble.first.weight, ensemble.first.bias))
    x = x @ weight.T + bias
    for layer in ensemble.later:
        if ensemble.norm == "rms":
            x = x / (x.square().mean(-1, keepdim=True) + 1e-4).sqrt()
        elif ensemble.norm == "layer":
            x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-3).sqrt()
        x = torch.nn.functional.silu(x) @ layer.weight[member] + layer.bias[member]
    return x


def test_what_one_member_learns_no_other_does():
    ensemble = Ensemble(Layers(), members=3, inputs=5, units=7, layers=2, outputs=4)
    ensemble(torch.randn(6, 5))[1].square().sum().backward()
    first = ensemble.first.weight.grad.unflatten(0, (3, -1))
    for gradient in (first, *(layer.weight.grad for layer in ensemble.later)):
        assert gradient[1].abs().max() > 0
        assert not gradient[[0, 2]].any()


@pytest.mark.parametrize("init", ["fan_in", "fan_avg", "glorot"])
def test_members_begin_as_large_as_networks_that_are_alone(init):
    torch.manual_seed(0)
    make = Layers(init=init)
    single = make.linear(64, 64).weight.std()
    ensemble = Ensemble(make, members=10, inputs=64, units=64, layers=1, outputs=64)
    for layer in (ensemble.first, *ensemble.later):
        assert layer.weight.std().item() == pytest.approx(single.item(), rel=0.05)


def test_in_half_precision_predictions_are_float32():
    ensemble = Ensemble(Layers(), members=2, inputs=5, units=8, layers=2, outputs=4)
    with torch.autocast("cpu", torch.bfloat16):
        assert ensemble(torch.randn(6, 5)).dtype == torch.float32
