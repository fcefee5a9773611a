import io

import numpy as np
import torch
from PIL import Image

from reverie.log.charts import DREAMT, SEEN
from reverie.log.dreams import (
    BORDER,
    CHART_HEIGHT,
    CHART_WIDTH,
    GAP,
    GUTTER,
    MAX_SIDE,
    Scene,
    chosen,
    film,
    framed,
    scenes,
    warm,
)
from reverie.log.video import encode_gif
from reverie.world.dream import Dream, Pair


def scene_of(steps=8, side=32, entries=0, images=1, context=3):
    """A window whose image is white in truth and dark in the dream."""
    rng = np.random.default_rng(0)
    truth = np.full((steps, side, side, 3), 255, np.uint8)
    pair = (rng.normal(size=(steps, entries)), rng.normal(size=(steps, entries)))
    numbers = {name: (rng.normal(size=steps), rng.normal(size=steps)) for name in ("reward", "continue", "value")}
    return Scene(
        np.arange(steps) < context,
        {f"image{i}": (truth, truth // 4) for i in range(images)},
        {"vector": pair} if entries else {},
        numbers,
    )


def close(frame, colour, tolerance=0):
    return np.abs(frame.astype(int) - colour).max(-1) <= tolerance


def test_truth_dream_and_error_lie_below_each_other():
    frames = film([scene_of()])
    side, left, header = 128, GUTTER + BORDER, 18 + GAP
    middles = [header + BORDER + side // 2 + i * (side + 2 * BORDER + GAP) for i in range(3)]
    shown = [frames[5, y, left + side // 2].tolist() for y in middles]
    assert shown[:2] == [[255] * 3, [63] * 3]
    assert shown[2] == warm(np.full((1, 1, 1), 192))[0, 0, 0].tolist()


def test_the_border_changes_where_the_eyes_are_closed():
    frames = film([scene_of(context=3)])
    top = 18 + GAP + 128 + 2 * BORDER + GAP  # of the dream
    colours = [frame[top + 1, GUTTER + 40].tolist() for frame in frames]
    assert colours == [list(SEEN)] * 3 + [list(DREAMT)] * 5


def test_every_part_adds_its_size():
    charts, bare = 3 * (CHART_HEIGHT[True] + GAP), CHART_HEIGHT[False] + GAP
    image = 3 * (128 + 2 * BORDER + GAP)
    width = 128 + 2 * BORDER + 2 * GAP
    assert film([scene_of()]).shape == (8, 18 + GAP + image + charts + 22, GUTTER + width, 3)
    assert film([scene_of()] * 3).shape[2] == GUTTER + 3 * width
    assert film([scene_of(images=2)]).shape[1] == 18 + GAP + 2 * image + charts + 22
    assert film([scene_of(images=0)]).shape[1:3] == (18 + GAP + 3 * bare + 22, GUTTER + CHART_WIDTH + 2 * GAP)
    assert film([scene_of(images=0, entries=2)]).shape[1] == 18 + GAP + 5 * bare + 22


def test_large_and_gray_images_fit():
    large = scene_of(side=2 * MAX_SIDE, steps=2)
    assert film([large]).shape[2] == GUTTER + MAX_SIDE + 2 * BORDER + 2 * GAP
    gray = np.full((2, 84, 84, 4), 128, np.uint8)
    assert film([Scene(np.ones(2, bool), {"image": (gray, gray)}, {}, large.numbers)]).ndim == 4


def test_a_shorter_window_holds_its_last_frame():
    frames = film([scene_of(steps=4), scene_of(steps=8)])
    width = 128 + 2 * BORDER
    short = frames[:, :-22, GUTTER : GUTTER + width]
    assert len(frames) == 8 and (short[4:] == short[3]).all() and (short[3] != short[2]).any()


def test_of_many_entries_those_that_vary_most_are_shown_in_their_order():
    truth = np.random.default_rng(0).normal(size=(20, 9)) * np.array([1, 9, 2, 8, 3, 7, 4, 6, 5])
    windows = [Scene(np.ones(20, bool), {}, {"vector": (truth, truth)}, {"reward": (truth[:, 0], truth[:, 0])})]
    assert [curve.name for curve in chosen(windows)[0]] == [*(f"vector {i}" for i in (1, 3, 5, 6, 7, 8)), "reward"]


def test_curves_of_numbers_come_in_their_order_and_a_single_entry_has_no_number():
    names = [curve.name for curve in chosen([scene_of(entries=1)])[0]]
    assert names == ["vector", "reward", "value", "continue"]


def test_long_names_are_cut_but_not_their_numbers():
    pair = np.random.default_rng(0).normal(size=(2, 4, 2))
    scene = Scene(np.ones(4, bool), {}, {"proprioception": tuple(pair)}, {})
    assert [curve.name for curve in chosen([scene])[0]] == ["proprioce 0", "proprioce 1"]


def test_errors_become_warmer_and_brighter():
    shades = warm(np.arange(256)[None, None]).astype(int)[0, 0]
    assert shades[0].tolist() == [0, 0, 0] and shades[255].tolist() == [255] * 3
    assert (np.diff(shades.sum(-1)) >= 0).all()
    assert np.abs(shades[127] - DREAMT).max() <= 2


def test_a_frame_may_change_its_colour():
    colours = np.array([SEEN, DREAMT])
    shown = framed(np.zeros((2, 4, 5, 3), np.uint8), colours)
    assert shown.shape == (2, 4 + 2 * BORDER, 5 + 2 * BORDER, 3)
    assert (shown[:, 0, 0] == colours).all() and (shown[:, BORDER:-BORDER, BORDER:-BORDER] == 0).all()


def test_tensors_become_scenes_of_the_first_windows():
    pair = Pair(torch.rand(3, 4, 8, 8, 3), torch.rand(3, 4, 8, 8, 3))
    seen = torch.rand(3, 4) > 0.5
    numbers = Pair(torch.rand(3, 4), torch.rand(3, 4).bfloat16())
    shown = scenes(Dream(seen, {"image": pair}, {}, {"reward": numbers}), 2)
    assert len(shown) == 2
    assert shown[1].seen.tolist() == seen[1].tolist()
    truth, dreamt = shown[1].images["image"]
    assert truth.dtype == np.uint8
    np.testing.assert_allclose(dreamt / 255, pair.dreamt[1], atol=0.5 / 255 + 1e-6)
    assert shown[0].numbers["reward"][1].tolist() == numbers.dreamt[0].tolist()


def test_colours_of_border_and_curves_survive_the_palette_of_a_gif():
    scene = scene_of()
    noise = np.random.default_rng(1).integers(0, 256, (8, 32, 32, 3), np.uint8)
    frames = film([Scene(scene.seen, {"image": (noise, noise)}, {}, scene.numbers)] * 2)
    with Image.open(io.BytesIO(encode_gif(frames, 10))) as gif:
        for number, colour in ((0, SEEN), (7, DREAMT)):
            gif.seek(number)
            shown = np.asarray(gif.convert("RGB"))
            assert shown.shape == frames.shape[1:]
            assert close(shown, colour, 24).mean() > 0.01


def test_entries_without_numbers_are_shown_last_and_images_without_any_are_black():
    dull = np.random.default_rng(0).normal(size=(8, 9))
    dull[:, :4] = np.nan
    bright = scene_of(entries=9, images=0)
    torn = Scene(bright.seen, {}, {"vector": (dull, dull)}, bright.numbers)
    assert [curve.name for curve in chosen([torn])[0][:-3]] == ["vector 3", *(f"vector {i}" for i in range(4, 9))]
    image = torch.full((1, 2, 4, 4, 3), torch.nan)
    dream = Dream(torch.ones(1, 2, dtype=torch.bool), {"image": Pair(torch.ones_like(image), image)}, {}, {})
    assert not scenes(dream)[0].images["image"][1].any()
