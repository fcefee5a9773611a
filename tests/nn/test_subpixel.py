"""Folded convolutions: the numbers and gradients of what they stand for."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reverie.nn.layers import Layers
from reverie.nn.subpixel import enlarged_conv, phases_of_pairs, pooled_conv
from reverie.world.images import PoolEncoder


def parts(inputs, outputs):
    torch.manual_seed(0)
    conv = nn.Conv2d(inputs, outputs, 5, padding=2).double()
    return conv, torch.randn(2, 6, 8, inputs, dtype=torch.float64, requires_grad=True)


def agree(ours, theirs, conv, x):
    torch.testing.assert_close(ours, theirs)
    goal = torch.randn(ours.shape, dtype=torch.float64)
    leaves = [x, *conv.parameters()]
    for mine, other in zip(*(torch.autograd.grad(y, leaves, goal) for y in (ours, theirs))):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("outputs", [1, 3, 8])
def test_enlarging_and_convolving_at_once(outputs):
    conv, x = parts(5, outputs)
    theirs = conv(F.interpolate(x.permute(0, 3, 1, 2), scale_factor=2.0)).permute(0, 2, 3, 1)
    agree(enlarged_conv(x, conv), theirs, conv, x)


@pytest.mark.parametrize("inputs", [1, 3, 8, 9])
def test_convolving_and_pooling_at_once(inputs):
    conv, x = parts(inputs, 4)
    theirs = F.max_pool2d(conv(x.permute(0, 3, 1, 2)), 2).permute(0, 2, 3, 1)
    agree(pooled_conv(x, conv), theirs, conv, x)


def test_convolving_pairs_of_pixels():
    conv, x = parts(3, 4)
    phases = phases_of_pairs(x, conv).reshape(2, 6, 8, 4) + conv.bias  # the two phases of a pair are pixels of a line
    agree(phases, conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1), conv, x)


def test_a_folded_encoder_sees_the_same():
    torch.manual_seed(0)
    encoder = PoolEncoder(Layers(), (32, 48, 3), 4)
    images = torch.rand(64, 3, 32, 48) - 0.5
    plain = encoder(images)
    encoder.folded = True
    torch.testing.assert_close(encoder(images), plain, atol=1e-5, rtol=1e-4)
