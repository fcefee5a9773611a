"""The tail of a folded convolution as one operation: the numbers and gradients of the layers it stands for.

The kernels need a GPU, or triton's interpreter: `TRITON_INTERPRET=1 pytest tests/nn/test_tail.py`.
"""

import os
from importlib.util import find_spec

import pytest
import torch
from torch.nn import functional as F
from torch.utils._triton import has_triton

from reverie.nn.layers import Layers
from reverie.nn.subpixel import enlarged_conv, enlarged_phases
from reverie.nn.tail import fused_tail, fused_tail_backward, fusible, in_rows, in_tiles, pooled_tail, spread_tail
from reverie.world.images import PoolDecoder, PoolEncoder

EPS = 1e-4
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None
DEVICE = "cpu" if INTERPRETED else "cuda"
needs_triton = pytest.mark.skipif(not INTERPRETED and not has_triton(), reason="there is no GPU with triton")


def parts(rows, channels, dtype=torch.float64, each=4):
    """Phases with many ties, bias and scale, and a gradient of the result."""
    torch.manual_seed(0)
    phases = torch.randn(rows, each, channels, dtype=dtype)
    phases[::2] = phases[::2].round()
    phases[1] = phases[1, :1]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    bias, scale = 0.3 * torch.randn(channels, dtype=wide), torch.randn(channels, dtype=wide)
    return phases, bias, scale, torch.randn(rows, channels, dtype=dtype)


def plain(phases, bias, scale, width):
    each, channels = phases.shape[1:]
    if each == 2:  # lines of pairs are maps twice as wide
        maps = phases.reshape(1, -1, 2 * width, channels).permute(0, 3, 1, 2)
        value = F.max_pool2d(maps, 2).permute(0, 2, 3, 1).reshape(-1, channels) + bias
    else:
        value = phases.amax(1) + bias
    normal = value / (value.square().mean(-1, keepdim=True) + EPS).sqrt() * scale
    y = normal * normal.sigmoid()
    return in_tiles(y, width) if each == 4 else in_rows(y, width) if each == 1 else y


@pytest.mark.parametrize(("width", "each"), [(0, 4), (6, 4), (6, 2), (0, 1), (6, 1)])
def test_numbers_and_gradients_are_those_of_the_formula(width, each):
    *inputs, dy = parts(24, 5, each=each)
    if each == 2:  # equal phases share their gradient here, and the first takes it all there
        inputs[0], dy = torch.randn_like(inputs[0]), dy[:12]
    leaves = [x.requires_grad_() for x in inputs]
    ours, theirs = fused_tail(*leaves, EPS, width), plain(*leaves, width)
    torch.testing.assert_close(ours, theirs)
    for found, expected in zip(*(torch.autograd.grad(y, leaves, dy) for y in (ours, theirs))):
        torch.testing.assert_close(found, expected)


def test_tiles_are_those_that_convolutions_take():
    maps = torch.arange(2 * 4 * 6).reshape(2, 4, 6, 1)
    tiles = in_tiles(maps.reshape(-1, 1), 6)
    assert tiles[:8, 0].tolist() == [0, 1, 6, 7, 2, 3, 8, 9]
    assert in_rows(tiles, 6).equal(maps.reshape(-1, 1))


def test_the_layers_of_an_encoder_are_what_it_does():
    torch.manual_seed(0)
    tail, bias = Layers().tail(4), torch.randn(4)
    torch.nn.init.normal_(tail[0].weight)
    phases = torch.randn(2, 3, 5, 16)
    expected = tail(phases.unflatten(3, (4, 4)).amax(3) + bias)
    torch.testing.assert_close(pooled_tail(phases, bias, tail, tiled=False), expected)


def test_the_layers_of_a_decoder_are_what_it_does():
    torch.manual_seed(0)
    tail, conv, x = Layers().tail(8), torch.nn.Conv2d(5, 8, 5, padding=2), torch.randn(2, 3, 4, 5)
    torch.nn.init.normal_(tail[0].weight)
    ours = spread_tail(enlarged_phases(x, conv), conv.bias, tail)
    torch.testing.assert_close(ours, tail(enlarged_conv(x, conv)), atol=1e-5, rtol=1e-4)


def test_what_there_is_no_kernel_for():
    gpu = torch.device("cuda")
    assert not fusible(Layers().tail(4), torch.device("cpu"))
    assert not fusible(Layers(norm="layer").tail(4), gpu) and not fusible(Layers(activation="elu").tail(4), gpu)
    assert not fusible(Layers(norm="none").tail(4), gpu)
    assert fusible(Layers().tail(4), gpu) == has_triton()


def results(network, inputs, function):
    y = function(inputs)
    return [y, *torch.autograd.grad(y.sin().sum(), list(network.parameters()))]


@pytest.mark.parametrize(("shape", "depth"), [((32, 48, 3), 4), ((8, 8, 9), 4), ((16, 24, 3), 24), ((16, 16, 3), 32)])
def test_a_fused_encoder_is_a_folded_one_and_compiles_whole(shape, depth):
    torch.manual_seed(0)
    encoder = PoolEncoder(Layers(), shape, depth)
    encoder.folded = True
    images = torch.rand(64, shape[2], *shape[:2]) - 0.5
    expected = results(encoder, images, encoder)
    encoder.fused = True
    torch._dynamo.reset()
    for function in (encoder, torch.compile(encoder, backend="aot_eager", fullgraph=True)):
        for found, theirs in zip(results(encoder, images, function), expected):
            assert (found - theirs).norm() < 1e-2 * theirs.norm()  # rounding may change which phase is the largest


@pytest.mark.parametrize("shape", [(32, 48, 3), (8, 8, 9)])
def test_a_fused_decoder_is_a_plain_one_and_compiles_whole(shape):
    torch.manual_seed(0)
    decoder = PoolDecoder(Layers(), shape, 4, 16, 8, 6, 2)
    states = (torch.randn(5, 16), torch.randn(5, 8))
    expected = results(decoder, states, lambda both: decoder(*both))
    decoder.fused = True
    torch._dynamo.reset()
    for function in (decoder, torch.compile(decoder, backend="aot_eager", fullgraph=True)):
        for found, theirs in zip(results(decoder, states, lambda both, call=function: call(*both)), expected):
            torch.testing.assert_close(found, theirs, atol=1e-5, rtol=1e-4)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [12, 32, 48, 64, 96])
@pytest.mark.parametrize(("rows", "width", "each"), [(133, 0, 4), (120, 6, 4), (120, 6, 2), (133, 0, 1), (120, 6, 1)])
def test_kernels_do_the_same(dtype, channels, rows, width, each):
    from reverie.nn import tail_kernels

    *inputs, dy = parts(rows, channels, dtype, each)
    dy = dy[: rows // 2] if each == 2 else dy
    there = [x.to(DEVICE) for x in inputs]
    found = tail_kernels.forward(*there, EPS, width)
    gradients = tail_kernels.backward(dy.to(DEVICE), *there, EPS, width, tail_kernels.Launch(8, 2, 3, 2))
    expected = [fused_tail(*inputs, EPS, width), *fused_tail_backward(dy, *inputs, EPS, width)]
    allowed = 2e-2 if dtype == torch.bfloat16 else 1e-5  # the interpreter cuts what a GPU rounds
    for ours, theirs in zip([found, *gradients], expected):
        assert (ours.cpu().float() - theirs.float()).norm() < allowed * theirs.float().norm()


@pytest.mark.skipif(not torch.cuda.is_available() or not has_triton(), reason="there is no GPU with triton")
def test_kernels_within_a_compiled_encoder():
    torch.manual_seed(0)
    encoder = PoolEncoder(Layers(), (64, 64, 3), 24).cuda()
    encoder.folded = True
    images = torch.rand(64, 3, 64, 64, device="cuda") - 0.5
    expected = results(encoder, images, encoder)
    encoder.fused = True
    torch._dynamo.reset()
    found = results(encoder, images, torch.compile(encoder, backend="aot_eager", fullgraph=True))
    for ours, theirs in zip(found, expected):
        assert (ours - theirs).norm() < 1e-2 * theirs.norm()
