"""Convolutions in C: the same numbers as torch's, there and back."""

import copy
import pickle

import pytest
import torch

from reverie.nn.conv import TRUNKS, Layer, Trunk
from reverie.nn.native import team
from reverie.nn.native.convolved import Convolved
from reverie.nn.native.machine import Unfit

pytestmark = pytest.mark.usefixtures("c_compiler")

CASES = [
    ("nature", (84, 84, 4), 5),
    ("guide", (64, 64, 3), 7),
    ("small", (10, 10, 4), 3),
    ("guide", (90, 71, 2), 2),
    ("nature", (85, 97, 1), 1),  # whose last pixels no patch reaches
]


def trunk_of(name, shape) -> Trunk:
    torch.manual_seed(0)
    trunk = Trunk(shape, TRUNKS[name], 8)
    for conv in trunk.convs:
        torch.nn.init.normal_(conv.bias, std=0.1)
    return trunk


def images_of(shape, count) -> torch.Tensor:
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def gradients(trunk, found) -> list[torch.Tensor]:
    goal = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    return list(torch.autograd.grad(found, list(trunk.convs.parameters()), goal))


def assert_alike(trunk, convolved, image) -> None:
    expected, found = trunk._maps(image), convolved(image)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    for mine, theirs in zip(gradients(trunk, found), gradients(trunk, expected)):
        assert mine.shape == theirs.shape
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()), equal_nan=True)


@pytest.mark.parametrize(("name", "shape", "count"), CASES)
def test_the_same_as_torch(name, shape, count, threads):
    trunk = trunk_of(name, shape)
    assert_alike(trunk, Convolved(trunk), images_of(shape, count))


def test_other_kernels_and_strides(threads):
    layers = (Layer(16, 5, 3, 1), Layer(32, 2, 1, 1), Layer(16, 3, 4, 2))
    trunk = Trunk((31, 40, 2), layers, 8)
    assert_alike(trunk, Convolved(trunk), images_of((31, 40, 2), 4))


def test_a_pixel_worked_out_by_hand():
    """One patch of nine pixels: their sum with weights 1 is 9 / 255 times what they are, and so are its gradients."""
    trunk = Trunk((3, 3, 1), TRUNKS["small"], 8)
    with torch.no_grad():
        trunk.convs[0].weight.fill_(1.0)
        trunk.convs[0].bias.copy_(torch.arange(16.0) - 10)
    found = Convolved(trunk)(torch.full((1, 3, 3, 1), 51, dtype=torch.uint8))
    torch.testing.assert_close(found, (9 * 51 / 255 + torch.arange(16.0) - 10).clamp(min=0)[None])
    weight, bias = torch.autograd.grad(found.sum(), list(trunk.convs.parameters()))
    on = (torch.arange(16) > 8).float()
    torch.testing.assert_close(bias, on)
    torch.testing.assert_close(weight, (on * 51 / 255).reshape(16, 1, 1, 1).expand(16, 1, 3, 3))


@pytest.mark.parametrize("threads", [2, 3], indirect=True)
def test_whatever_thread_takes_what_the_bits_are_the_same(threads):
    trunk = trunk_of("guide", (64, 64, 3))
    image = images_of((64, 64, 3), 33)
    one, two = ([found := Convolved(trunk)(image), *gradients(trunk, found)] for _ in range(2))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(one, two))


def test_numbers_that_are_not_finite_are_not_hidden():
    trunk = trunk_of("guide", (64, 64, 3))
    with torch.no_grad():
        trunk.convs[0].weight[3, 1, 2, 2] = torch.nan
        trunk.convs[1].bias[5] = torch.inf
    found = Convolved(trunk)(images_of((64, 64, 3), 2))
    assert found.isnan().any() and torch.equal(found.isnan(), trunk._maps(images_of((64, 64, 3), 2)).isnan())


def test_images_that_lie_otherwise_and_images_of_another_kind():
    trunk = trunk_of("guide", (64, 64, 3))
    convolved, image = Convolved(trunk), images_of((64, 64, 3), 6)
    assert_alike(trunk, convolved, image[::2].flip(1))
    torch.testing.assert_close(convolved(image.float()), trunk._maps(image))
    wide = images_of((64, 68, 3), 1)
    assert torch.equal(convolved(wide), trunk._maps(wide))
    assert Convolved(trunk.to("meta"))(image.to("meta")).is_meta  # and no crash
    trunk = trunk_of("guide", (64, 64, 3))
    convolved = Convolved(trunk)
    trunk.double()
    with pytest.raises(RuntimeError):
        convolved(image)


def test_what_was_convolved_in_c_can_be_exported():
    trunk, image = trunk_of("small", (10, 10, 4)), images_of((10, 10, 4), 2)
    expected = trunk(image)
    trunk._maps = Convolved(trunk)
    torch.testing.assert_close(torch.export.export(trunk, (image,)).module()(image), expected)


def test_gradients_of_gradients_are_refused():
    trunk = trunk_of("small", (10, 10, 4))
    found = Convolved(trunk)(images_of((10, 10, 4), 2))
    (gradient,) = torch.autograd.grad(found.square().sum(), trunk.convs[0].weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda trunk: pickle.loads(pickle.dumps(trunk))])
def test_a_copy_runs_by_itself(copied):
    trunk = trunk_of("small", (10, 10, 4))
    image = images_of((10, 10, 4), 2)
    trunk._maps = Convolved(trunk)
    other = copied(trunk)
    with torch.no_grad():
        other.convs[0].weight.zero_()
    assert not torch.equal(other(image), trunk(image)) and not isinstance(other._maps, Convolved)


def test_what_there_are_no_convolutions_for():
    with pytest.raises(Unfit, match="no convolutions to 12 channels"):
        Convolved(Trunk((10, 10, 1), (Layer(12, 3, 1),), 8))
    with pytest.raises(Unfit, match="float32"):
        Convolved(Trunk((64, 64, 3), TRUNKS["guide"], 8, in_half=True))


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_without_openmp_threads_of_a_pool_do_the_same(threads, monkeypatch):
    trunk = trunk_of("small", (10, 10, 4))
    monkeypatch.setattr(team, "openmp", lambda: None)
    assert_alike(trunk, Convolved(trunk), images_of((10, 10, 4), 9))
