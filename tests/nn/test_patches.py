"""Patches of images."""

import pytest
import torch

from reverie.nn.patches import gathered, patches_of


def test_patches_are_the_pixels_around_every_other_one():
    images = torch.arange(2 * 4 * 6 * 3.0).reshape(2, 4, 6, 3) + 1
    found = gathered(images)
    assert found.shape == (2, 2, 3, 112)
    for b, y, x in ((0, 0, 0), (1, 1, 2), (0, 1, 1)):
        for i in range(6):
            for j in range(6):
                row, column = 2 * y + i - 2, 2 * x + j - 2
                inside = 0 <= row < 4 and 0 <= column < 6
                expected = images[b, row, column] if inside else torch.zeros(3)
                assert torch.equal(found[b, y, x].narrow(0, (i * 6 + j) * 3, 3), expected)
    assert (found[..., 108:] == 0).all()


@pytest.mark.parametrize("shape", [(2, 8, 8, 3), (1, 6, 10, 1), (3, 4, 4, 4)])
def test_the_operation_has_the_gradient_of_the_formula(shape):
    torch.manual_seed(0)
    images = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found, expected = patches_of(images), gathered(images)
    assert torch.equal(found, expected)
    goal = torch.randn_like(found)
    for one, other in zip(*(torch.autograd.grad(x, images, goal, retain_graph=True) for x in (found, expected))):
        torch.testing.assert_close(one, other)
    torch.compile(patches_of, backend="aot_eager", fullgraph=True)(images).sum().backward()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(5, 64, 64, 3), (3, 48, 20, 1), (2, 6, 6, 4)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_kernel_gathers_the_same(shape, kind):
    images = torch.randn(shape, device="cuda").to(kind)
    assert torch.equal(patches_of(images), gathered(images))
