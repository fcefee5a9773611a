"""Convolutions with a change of resolution, folded into smaller ones: the same numbers, in shapes that computers like.

A 5x5 convolution of an image enlarged by 2 looks at nine different pixels of the small image for each of its four
phases, so it is a 3x3 convolution of the small image with four times the outputs. A 5x5 convolution with 2x2 pooling is
one of 2x2 tiles of pixels, taken as channels, followed by a maximum over its four phases. Maps are (B, h, w, c) here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .patches import patches_of

TAPS, REACH = 5, 2
"""Width of the kernels, and how far they reach to each side."""


def enlarging_taps() -> Tensor:
    """Which taps of a kernel on the enlarged map fall on each pixel of the small one, by phase (2, 3, 5)."""
    taps = torch.zeros(2, 3, TAPS)
    for phase in range(2):
        for tap in range(TAPS):
            taps[phase, (phase + tap - REACH) // 2 + 1, tap] = 1
    return taps


def enlarged_conv(x: Tensor, conv: nn.Module, taps: Tensor) -> Tensor:
    """A padded 5x5 convolution of maps (B, h, w, i) enlarged by nearest neighbours: (B, 2 h, 2 w, o)."""
    weight, bias = kernels_of(conv)
    batch, height, width, _ = x.shape
    outputs = len(weight)
    folded = torch.einsum("oikl,atk,bul->aboitu", weight, taps, taps)  # (2, 2, o, i, 3, 3)
    spare = -outputs % 4  # a few outputs more make aligned rows, and much faster kernels
    folded = F.pad(folded, (0, 0, 0, 0, 0, 0, 0, spare)).flatten(0, 2)
    y = F.conv2d(x.permute(0, 3, 1, 2), folded.contiguous(memory_format=torch.channels_last), padding=1)
    y = y.permute(0, 2, 3, 1).reshape(batch, height, width, 2, 2, outputs + spare)[..., :outputs]
    return y.permute(0, 1, 3, 2, 4, 5).reshape(batch, 2 * height, 2 * width, outputs) + bias.to(y.dtype)


def pooling_taps() -> Tensor:
    """Which tap of a kernel on pixels falls on each pixel of each 2x2 tile, by phase (2, 3, 2, 5)."""
    taps = torch.zeros(2, 3, 2, TAPS)
    for phase in range(2):
        for tile in range(3):
            for pixel in range(2):
                tap = 2 * (tile - 1) + pixel - phase + REACH
                if 0 <= tap < TAPS:
                    taps[phase, tile, pixel, tap] = 1
    return taps


def pooled_conv(x: Tensor, conv: nn.Module, taps: Tensor) -> Tensor:
    """A padded 5x5 convolution of maps (B, h, w, i) and 2x2 max-pooling: (B, h / 2, w / 2, o)."""
    _, bias = kernels_of(conv)
    phases = phases_of(x, conv, taps)
    return phases.unflatten(3, (4, len(bias))).amax(3) + bias.to(phases.dtype)


def phases_of(x: Tensor, conv: nn.Module, taps: Tensor) -> Tensor:
    """The convolution of maps (B, h, w, i) at the four phases of each tile, without bias: (B, h / 2, w / 2, 4 o)."""
    weight, _ = kernels_of(conv)
    return _by_patches(x, weight) if weight.shape[1] < 8 else phases_of_tiles(tiles_of(x), conv, taps)


def tiles_of(x: Tensor) -> Tensor:
    """The four pixels of each 2x2 tile of maps (B, h, w, i) side by side: (B, h / 2, w / 2, 4 i)."""
    batch, height, width, inputs = x.shape
    return x.reshape(batch, height // 2, 2, width // 2, 2, inputs).permute(0, 1, 3, 2, 4, 5).flatten(3)


def phases_of_tiles(tiles: Tensor, conv: nn.Module, taps: Tensor) -> Tensor:
    """What `phases_of` makes of maps, of their tiles."""
    weight, _ = kernels_of(conv)
    folded = torch.einsum("oikl,atbk,cudl->acobditu", weight, taps, taps)  # (2, 2, o, 2, 2, i, 3, 3)
    folded = folded.flatten(0, 2).flatten(1, 3).contiguous(memory_format=torch.channels_last)
    return F.conv2d(tiles.permute(0, 3, 1, 2), folded, padding=1).permute(0, 2, 3, 1)


def _by_patches(x: Tensor, weight: Tensor) -> Tensor:
    """The same as a product with 6x6 patches, two pixels apart: of a few channels convolutions make slow kernels."""
    outputs = len(weight)
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))  # the product would round all 36 copies of each pixel
    patches = patches_of(x)
    shifted = [F.pad(weight, (b, 1 - b, a, 1 - a)) for a in range(2) for b in range(2)]  # each (o, i, 6, 6)
    matrix = torch.stack(shifted).permute(0, 1, 3, 4, 2).reshape(4 * outputs, -1)
    return patches @ F.pad(matrix, (0, patches.shape[-1] - matrix.shape[-1])).to(patches.dtype).T


def kernels_of(conv: nn.Module) -> tuple[Tensor, Tensor]:
    """Weights and bias of a padded 5x5 convolution."""
    assert isinstance(conv, nn.Conv2d) and conv.kernel_size == (TAPS, TAPS) and conv.padding == (REACH, REACH), conv
    assert conv.bias is not None
    return conv.weight, conv.bias
