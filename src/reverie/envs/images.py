"""Resizing of images by area, in plain numpy: what OpenCV's INTER_AREA shows, without needing it.

Pillow's box filter weighs border pixels all or nothing and differs by several gray levels; a matrix product is exact
too but wakes BLAS threads in every environment worker.
"""

from __future__ import annotations

import numpy as np


class AreaResize:
    """Resizes images (h, w, c) of one shape: each new pixel is the mean of the area it covers."""

    def __init__(self, height: int, width: int, to: int) -> None:
        self.rows = overlaps(height, to)
        self.columns = overlaps(width, to)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """The resized image, a new uint8 array (to, to, c)."""
        narrow = weighted_rows(image, *self.rows)
        small = weighted_rows(narrow.transpose(1, 0, 2), *self.columns).transpose(1, 0, 2)
        return np.ascontiguousarray(np.rint(small).astype(np.uint8))


def overlaps(old: int, new: int) -> tuple[np.ndarray, np.ndarray]:
    """The old cells that each new cell covers, as indices (k, new), and their shares, as weights (k, new, 1)."""
    scale = old / new
    left = np.arange(new)[:, None] * scale
    cells = np.arange(old)
    share = np.clip(np.minimum(left + scale, cells + 1) - np.maximum(left, cells), 0, None) / scale  # (new, old)
    share[share < 1e-9] = 0.0
    count = int((share > 0).sum(1).max())
    first = np.minimum((share > 0).argmax(1), old - count)
    index = first + np.arange(count)[:, None]
    weight = np.take_along_axis(share.T, index, 0).astype(np.float32)
    return index, weight[..., None]


def weighted_rows(image: np.ndarray, index: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted sums of rows of an image (old, n, c), as float32 (new, n, c)."""
    flat = image.reshape(len(image), -1)
    part = np.empty((index.shape[1], flat.shape[1]), np.float32)  # one buffer: twice as fast as fresh products
    total = np.zeros_like(part)
    for rows, share in zip(index, weight):
        part[...] = flat[rows]
        part *= share
        total += part
    return total.reshape(-1, *image.shape[1:])
