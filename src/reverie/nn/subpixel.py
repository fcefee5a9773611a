"""Convolutions with a change of resolution, folded into smaller ones: the same numbers, in shapes that computers like.

A 5x5 convolution of an image enlarged by 2 looks at nine different pixels of the small image for each of its four
phases, so it is a 3x3 convolution of the small image with four times the outputs. A 5x5 convolution with 2x2 pooling is
one of 2x2 tiles of pixels, taken as channels, followed by a maximum over its four phases; or, with fewer products by
zeros, one of pairs of pixels, whose phases are in two lines. Maps are (B, h, w, c) here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .patches import patches_of

TAPS, REACH = 5, 2
"""Width of the kernels, and how far they reach to each side."""


def shifted(weight: Tensor) -> Tensor:
    """Kernels (o, i, 5, 5) as those of 6x6 pixels, or 3x3 tiles of them, by phase (2, 2, o, i, 3, 2, 3, 2)."""
    phases = [F.pad(weight, (b, 1 - b, a, 1 - a)) for a in range(2) for b in range(2)]  # each (o, i, 6, 6)
    return torch.stack(phases).unflatten(0, (2, 2)).unflatten(-2, (3, 2)).unflatten(-1, (3, 2))


def enlarged_phases(x: Tensor, conv: nn.Module) -> Tensor:
    """A padded 5x5 convolution of maps (B, h, w, i) enlarged by nearest neighbours, without bias, before it is spread.

    At each pixel of the small map there are four phases (B, h, w, 4, o), and perhaps some outputs more than asked for.
    """
    weight, _ = kernels_of(conv)
    kernels = shifted(weight)  # pixels of a tile were all the same one
    kernels = kernels[..., 0, :, :] + kernels[..., 1, :, :]
    kernels = kernels[..., 0] + kernels[..., 1]  # (2, 2, o, i, 3, 3)
    spare = -len(weight) % 4  # a few outputs more make aligned rows, and much faster kernels
    kernels = F.pad(kernels, (0, 0, 0, 0, 0, 0, 0, spare)).flatten(0, 2)
    y = F.conv2d(x.permute(0, 3, 1, 2), kernels.contiguous(memory_format=torch.channels_last), padding=1)
    return y.permute(0, 2, 3, 1).unflatten(3, (4, -1))


def enlarged_conv(x: Tensor, conv: nn.Module) -> Tensor:
    """A padded 5x5 convolution of maps (B, h, w, i) enlarged by nearest neighbours: (B, 2 h, 2 w, o)."""
    _, bias = kernels_of(conv)
    batch, height, width, _ = x.shape
    y = enlarged_phases(x, conv)[..., : len(bias)].unflatten(3, (2, 2)).permute(0, 1, 3, 2, 4, 5)
    return y.reshape(batch, 2 * height, 2 * width, len(bias)) + bias.to(y.dtype)


def pooled_conv(x: Tensor, conv: nn.Module) -> Tensor:
    """A padded 5x5 convolution of maps (B, h, w, i) and 2x2 max-pooling: (B, h / 2, w / 2, o)."""
    _, bias = kernels_of(conv)
    phases = phases_of(x, conv)
    return phases.unflatten(3, (4, len(bias))).amax(3) + bias.to(phases.dtype)


def phases_of(x: Tensor, conv: nn.Module) -> Tensor:
    """The convolution of maps (B, h, w, i) at the four phases of each tile, without bias: (B, h / 2, w / 2, 4 o)."""
    weight, _ = kernels_of(conv)
    return _by_patches(x, weight) if weight.shape[1] < 8 else phases_of_tiles(tiles_of(x), conv)


def tiles_of(x: Tensor) -> Tensor:
    """The four pixels of each 2x2 tile of maps (B, h, w, i) side by side: (B, h / 2, w / 2, 4 i)."""
    batch, height, width, inputs = x.shape
    return x.reshape(batch, height // 2, 2, width // 2, 2, inputs).permute(0, 1, 3, 2, 4, 5).flatten(3)


def phases_of_tiles(tiles: Tensor, conv: nn.Module) -> Tensor:
    """What `phases_of` makes of maps, of their tiles."""
    kernels = shifted(kernels_of(conv)[0]).permute(0, 1, 2, 5, 7, 3, 4, 6)  # (2, 2, o, 2, 2, i, 3, 3)
    kernels = kernels.flatten(0, 2).flatten(1, 3).contiguous(memory_format=torch.channels_last)
    return F.conv2d(tiles.permute(0, 3, 1, 2), kernels, padding=1).permute(0, 2, 3, 1)


def phases_of_pairs(x: Tensor, conv: nn.Module) -> Tensor:
    """The convolution of maps (B, h, w, i) at both phases of each pair in a line, without bias: (B, h, w / 2, 2 o)."""
    weight, _ = kernels_of(conv)
    kernels = torch.stack([F.pad(weight, (b, 1 - b)) for b in range(2)]).unflatten(-1, (3, 2))  # (2, o, i, 5, 3, 2)
    kernels = kernels.permute(0, 1, 5, 2, 3, 4).flatten(2, 3).flatten(0, 1)  # (2 o, 2 i, 5, 3)
    pairs = x.reshape(*x.shape[:2], x.shape[2] // 2, -1).permute(0, 3, 1, 2)
    y = F.conv2d(pairs, kernels.contiguous(memory_format=torch.channels_last), padding=(REACH, 1))
    return y.permute(0, 2, 3, 1)


def _by_patches(x: Tensor, weight: Tensor) -> Tensor:
    """The same as a product with 6x6 patches, two pixels apart: of a few channels convolutions make slow kernels."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))  # the product would round all 36 copies of each pixel
    patches = patches_of(x)
    kernels = shifted(weight).flatten(-4, -3).flatten(-2)  # (2, 2, o, i, 6, 6)
    matrix = kernels.permute(0, 1, 2, 4, 5, 3).reshape(4 * len(weight), -1)
    return patches @ F.pad(matrix, (0, patches.shape[-1] - matrix.shape[-1])).to(patches.dtype).T


def kernels_of(conv: nn.Module) -> tuple[Tensor, Tensor]:
    """Weights and bias of a padded 5x5 convolution."""
    assert isinstance(conv, nn.Conv2d) and conv.kernel_size == (TAPS, TAPS) and conv.padding == (REACH, REACH), conv
    assert conv.bias is not None
    return conv.weight, conv.bias
