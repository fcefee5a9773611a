"""Image networks: sizes of many images, ranges, and one layer written out."""

import math

import pytest
import torch
from torch.nn import functional as F

from reverie.config.errors import UserError
from reverie.nn.layers import Layers
from reverie.world.images import PoolDecoder, PoolEncoder, StrideDecoder, StrideEncoder, ValidDecoder, stages_for

MAKE = Layers()
PLAIN = Layers("none", "elu", "glorot")
SHAPES = [(64, 64, 3), (96, 96, 3), (32, 32, 1), (10, 10, 4), (7, 7, 3), (64, 32, 3)]
MAPS = {64: (4, 4), 96: (6, 4), 32: (4, 3), 10: (5, 1), 7: (7, 0)}
"""Side of an image: side of the smallest map, and how often it was halved."""


@pytest.mark.parametrize("side", MAPS)
def test_images_are_halved_while_that_goes(side):
    assert stages_for(side, side) == MAPS[side][1]


@pytest.mark.parametrize("side", [84, 100, 63, 17])
def test_images_that_do_not_halve_far_enough_are_refused(side):
    with pytest.raises(UserError, match=r"--env\.size"):
        stages_for(side, side)


@pytest.mark.parametrize("shape", SHAPES)
def test_pooling_networks_take_and_make_images_of_any_size(shape):
    height, width, channels = shape
    encoder = PoolEncoder(MAKE, shape, 2)
    out = encoder(torch.rand(3, channels, height, width) - 0.5)
    stages = min(MAPS[height][1], MAPS[width][1])
    widths = [4, 6, 8, 8][: max(1, stages)]
    assert out.shape == (3, encoder.outputs) and encoder.outputs == widths[-1] * (height * width >> 2 * stages)
    decoder = PoolDecoder(MAKE, shape, 2, 16, 6, 5, 8)
    image = decoder(torch.randn(3, 16) * 20, torch.randn(3, 6) * 20)
    assert image.shape == (3, channels, height, width)
    assert image.min() >= 0 and image.max() <= 1


@pytest.mark.parametrize("shape", [(64, 64, 3), (96, 96, 3), (32, 32, 1), (10, 10, 4)])
def test_strided_networks(shape):
    height, width, channels = shape
    side, stages = MAPS[height]
    encoder = StrideEncoder(MAKE, shape, 2, padding=1)
    out = encoder(torch.rand(3, channels, height, width) - 0.5)
    assert out.shape == (3, encoder.outputs) and encoder.outputs == side * side * 2 * 2 ** (stages - 1)
    image = StrideDecoder(MAKE, shape, 2, 9)(torch.randn(3, 5), torch.randn(3, 4))
    assert image.shape == (3, channels, height, width)


def test_unpadded_networks_are_for_one_size():
    encoder = StrideEncoder(PLAIN, (64, 64, 3), 2, padding=0)
    assert encoder.outputs == 2 * 2 * 16 and encoder(torch.rand(2, 3, 64, 64)).shape == (2, 64)
    image = ValidDecoder(PLAIN, (64, 64, 1), 2, 9)(torch.randn(3, 5), torch.randn(3, 4))
    assert image.shape == (3, 1, 64, 64)
    for make in (lambda s: StrideEncoder(PLAIN, s, 2, 0), lambda s: ValidDecoder(PLAIN, s, 2, 9)):
        with pytest.raises(UserError, match="64x64"):
            make((96, 96, 3))
    with pytest.raises(UserError, match=r"--world\.cnn pool"):
        StrideDecoder(PLAIN, (7, 7, 3), 2, 9)


def test_unbounded_decoders_begin_at_mid_gray():
    for decoder in (StrideDecoder(MAKE, (32, 32, 3), 2, 9), ValidDecoder(PLAIN, (64, 64, 3), 2, 9)):
        with torch.no_grad():
            for parameter in decoder.convs[-1].parameters():
                parameter.zero_()
        image = decoder(torch.randn(1, 5), torch.randn(1, 4))
        assert (image == 0.5).all()


def test_a_pooling_stage_by_hand():
    """Convolution, the largest of four, root mean square over channels, SiLU; in that order."""
    torch.manual_seed(0)
    encoder = PoolEncoder(MAKE, (10, 10, 2), 2)
    x = torch.rand(1, 2, 10, 10) - 0.5
    conv = encoder.convs[0]
    y = F.conv2d(x, conv.weight, conv.bias, padding=2).double()
    found = encoder(x).reshape(5, 5, 4)
    for i, j in ((0, 0), (4, 2)):
        pooled = [max(y[0, c, 2 * i + a, 2 * j + b].item() for a in (0, 1) for b in (0, 1)) for c in range(4)]
        root = math.sqrt(sum(v * v for v in pooled) / 4 + 1e-4)
        expected = [v / root / (1 + math.exp(-v / root)) for v in pooled]
        torch.testing.assert_close(found[i, j], torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_every_block_of_the_state_makes_channels_of_the_whole_map():
    torch.manual_seed(0)
    decoder = PoolDecoder(MAKE, (16, 16, 3), 2, 16, 6, 5, 8)
    assert decoder.blocks == 2 and decoder.map == (4, 4, 6)  # 6 channels: two blocks is all that fits
    taken = []
    decoder.tail.register_forward_pre_hook(lambda module, inputs: taken.append(inputs[0].detach()))
    deter, stoch = torch.randn(1, 16), torch.zeros(1, 6)
    decoder(deter, stoch)
    deter[:, :8] += 1
    decoder(deter, stoch)
    changed = (taken[0] != taken[1])[0]  # (h, w, c)
    assert changed[..., :3].all() and not changed[..., 3:].any()
