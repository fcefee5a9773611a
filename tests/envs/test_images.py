from __future__ import annotations

import numpy as np

from reverie.envs.images import AreaResize


def test_whole_areas_are_means() -> None:
    image = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    small = AreaResize(8, 12, 4)(image)
    means = image.reshape(4, 2, 4, 3, 3).mean((1, 3))
    assert small.dtype == np.uint8 and small.flags.c_contiguous
    np.testing.assert_array_equal(small, np.rint(means))


def test_broken_areas_weigh_border_pixels_by_their_share() -> None:
    image = np.array([[[0], [90], [240]]], np.uint8).repeat(3, 0)
    small = AreaResize(3, 3, 2)(image)
    row = [(0 * 1 + 90 * 0.5) / 1.5, (90 * 0.5 + 240 * 1) / 1.5]
    np.testing.assert_array_equal(small[..., 0], [row, row])


def test_the_same_size_and_larger_sizes_keep_pixels() -> None:
    image = np.random.default_rng(1).integers(0, 256, (5, 5, 1), dtype=np.uint8)
    np.testing.assert_array_equal(AreaResize(5, 5, 5)(image), image)
    np.testing.assert_array_equal(AreaResize(5, 5, 10)(image), image.repeat(2, 0).repeat(2, 1))
