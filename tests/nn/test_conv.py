"""The trunk, against the plain formulation in double precision."""

import numpy as np
import pytest
import torch
from torch import nn

from reverie.config.errors import UserError
from reverie.nn.conv import TRUNKS, Trunk, trunk_for

CASES = [("nature", (84, 84, 4)), ("guide", (64, 64, 3)), ("small", (10, 10, 4))]


def plain(trunk: Trunk, image: torch.Tensor) -> torch.Tensor:
    """Divide by 255, convolve, flatten, as the papers write it; float64, channels first."""
    x = image.permute(0, 3, 1, 2).double() / 255
    for conv in trunk.convs:
        x = nn.functional.conv2d(x, conv.weight.double(), conv.bias.double(), conv.stride, conv.padding).relu()
    x = x.permute(0, 2, 3, 1).flatten(1)
    return nn.functional.linear(x, trunk.linear.weight.double(), trunk.linear.bias.double()).relu()


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_equals_the_plain_formulation_with_its_gradients(name, shape):
    torch.manual_seed(0)
    trunk = Trunk(shape, TRUNKS[name], 32)
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (6, *shape), dtype=np.uint8))
    ours, theirs = trunk(image), plain(trunk, image)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(out.square().sum(), list(trunk.parameters())) for out in (ours, theirs)]
    for mine, other in zip(*gradients):
        assert (mine.double() - other.double()).norm() < 1e-3 * other.norm()


@pytest.mark.parametrize(("name", "least"), [("nature", 36), ("guide", 8), ("small", 3)])
def test_images_that_are_too_small_are_told(name, least):
    assert Trunk((least, least + 1, 1), TRUNKS[name], 4)(torch.zeros(1, least, least + 1, 1)).shape == (1, 4)
    with pytest.raises(UserError, match=f"images of {least}x{least - 1} pixels are too small .* {least}x{least}: "):
        Trunk((least, least - 1, 1), TRUNKS[name], 4)


def test_leading_dimensions_are_kept():
    trunk = Trunk((64, 64, 3), TRUNKS["guide"], 16)
    image = torch.randint(0, 255, (2, 3, 64, 64, 3), dtype=torch.uint8)
    out = trunk(image)
    assert out.shape == (2, 3, 16)
    torch.testing.assert_close(out[1, 2], trunk(image[1, 2]))


def test_the_guides_sizes():
    guide = Trunk((64, 64, 3), TRUNKS["guide"], 512)
    assert guide.linear.in_features == 8 * 8 * 64 == 4096
    assert Trunk((84, 84, 4), TRUNKS["nature"], 512).linear.in_features == 7 * 7 * 64
    names = {size: next(n for n, t in TRUNKS.items() if t == trunk_for("auto", size, size)) for size in (10, 64, 84)}
    assert names == {10: "small", 64: "guide", 84: "nature"}


def test_bfloat16_is_close_and_weights_stay_float32():
    torch.manual_seed(0)
    trunk = Trunk((64, 64, 3), TRUNKS["guide"], 16)
    image = torch.randint(0, 255, (4, 64, 64, 3), dtype=torch.uint8)
    exact = trunk(image)
    trunk.in_half = True
    near = trunk(image)
    assert near.dtype == torch.float32
    assert not torch.equal(near, exact)
    assert (near - exact).norm() < 0.02 * exact.norm()
    near.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in trunk.parameters())


def test_weights_are_orthogonal_with_the_right_gain():
    weight = Trunk((84, 84, 4), TRUNKS["nature"], 512).linear.weight
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(512), atol=1e-3, rtol=0)
