"""Patches of images as rows of a matrix: a convolution of few channels is then a product that GPUs are fast at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._triton import has_triton

SIDE, APART, REACH = 6, 2, 2
"""Pixels of a patch's side, between two patches, and that the first lies outside of the image."""


def width_of(channels: int) -> int:
    """Numbers in the row of a patch: its pixels, filled up to a multiple of 16."""
    return -(-(SIDE**2 * channels) // 16) * 16


def gathered(images: Tensor) -> Tensor:
    """Patches (B, h / 2, w / 2, k) of images (B, h, w, c), with zeros around these and at the end of each row."""
    padded = F.pad(images, (0, 0, REACH, REACH, REACH, REACH))
    patches = padded.unfold(1, SIDE, APART).unfold(2, SIDE, APART)  # (B, h / 2, w / 2, c, 6, 6)
    rows = patches.permute(0, 1, 2, 4, 5, 3).flatten(3)
    return F.pad(rows, (0, width_of(images.shape[-1]) - rows.shape[-1]))


@torch.library.custom_op("reverie::patches", mutates_args=())
def patches_of(images: Tensor) -> Tensor:
    """What `gathered` gives, on a GPU by a kernel of its own."""
    return gathered(images)


@patches_of.register_kernel("cuda")
def _on_gpu(images: Tensor) -> Tensor:
    if not has_triton():
        return gathered(images)
    from . import patch_kernels

    return patch_kernels.gathered(images)


@patches_of.register_fake
def _shape(images: Tensor) -> Tensor:
    batch, height, width, channels = images.shape
    return images.new_empty(batch, height // APART, width // APART, width_of(channels))


def _kept(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.shape = inputs[0].shape


def _differentiated(ctx: Any, gradient: Tensor) -> Tensor:
    batch, height, width, channels = ctx.shape
    pixels = gradient[..., : SIDE**2 * channels].unflatten(-1, (SIDE**2, channels))
    columns = pixels.permute(0, 4, 3, 1, 2).reshape(batch, channels * SIDE**2, -1)  # as fold wants them
    image = F.fold(columns, (height, width), SIDE, padding=REACH, stride=APART)
    return image.permute(0, 2, 3, 1)


patches_of.register_autograd(_differentiated, setup_context=_kept)
