"""Patches of images by a Triton kernel. Imports triton, so it is imported itself only where there is one."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .patches import APART, REACH, SIDE, width_of

WARPS = 4


def gathered(images: Tensor) -> Tensor:
    """Patches (B, h / 2, w / 2, k) of images (B, h, w, c)."""
    images = images.contiguous()
    batch, height, width, channels = images.shape
    numbers = width_of(channels)
    lines, across = height // APART, width // APART
    rows = images.new_empty(batch, lines, across, numbers)
    _gather[(batch * lines,)](
        images, rows, height, width, channels, numbers, triton.next_power_of_2(numbers), triton.next_power_of_2(across),
        SIDE, APART, REACH, num_warps=WARPS,
    )  # fmt: skip
    return rows


@triton.jit
def _gather(
    images: tl.tensor, rows: tl.tensor,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, NUMBERS: tl.constexpr, NUMBERS_UP: tl.constexpr,
    ACROSS_UP: tl.constexpr, SIDE: tl.constexpr, APART: tl.constexpr, REACH: tl.constexpr,
) -> None:  # fmt: skip
    """One line of patches; where a number lies in its patch is worked out once for all patches of the line."""
    line = tl.program_id(0)
    image = line // (HEIGHT // APART)
    number = tl.arange(0, NUMBERS_UP)
    patch = tl.arange(0, ACROSS_UP)
    y = (line % (HEIGHT // APART)) * APART - REACH + number // (SIDE * C)
    x = (patch * APART - REACH)[:, None] * C + (number % (SIDE * C))[None, :]  # in numbers, not in pixels
    inside = ((y >= 0) & (y < HEIGHT) & (number < SIDE * SIDE * C))[None, :] & (x >= 0) & (x < WIDTH * C)
    at = image.to(tl.int64) * (HEIGHT * WIDTH * C) + (y * (WIDTH * C))[None, :] + x
    there = (patch < WIDTH // APART)[:, None] & (number < NUMBERS)[None, :]
    values = tl.load(images + at, mask=inside & there, other=0.0)
    to = (line.to(tl.int64) * (WIDTH // APART) + patch[:, None]) * NUMBERS + number[None, :]
    tl.store(rows + to, values, mask=there)
