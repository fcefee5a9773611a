import itertools

import numpy as np
import pytest

from reverie.log.charts import BACKGROUND, DREAMT, SEEN, TRUTH, Curve, axis, chart, figure, limits, text

SIZE = (80, 40)
EYES = np.array([True] * 4 + [False] * 6)


def places(frame, colour):
    """Where (y, x) a picture shows a colour."""
    return np.argwhere(np.abs(frame.astype(int) - colour).max(-1) < 12)


def ramp(offset=0.0):
    values = np.linspace(0.0, 1.0, 10)
    return Curve("x", values, np.clip(values + offset, 0, 1))


def test_curves_grow_from_left_to_right_and_rise_with_their_values():
    frames = chart(ramp(0.5), EYES, (0.0, 1.0), SIZE, 10)
    assert frames.shape == (10, 40, 80, 3) and frames.dtype == np.uint8
    reach = [places(frame, TRUTH)[:, 1].max() for frame in frames]
    assert all(after > before for before, after in itertools.pairwise(reach))
    assert reach[0] < 10 and reach[-1] > 70
    height = [places(frame, TRUTH)[:, 0].min() for frame in frames]
    assert height[-1] < 10 < 30 < height[0] <= 39


def test_the_dream_changes_its_colour_where_the_eyes_are_closed():
    frames = chart(ramp(0.5), EYES, (0.0, 1.0), SIZE, 10)
    assert len(places(frames[3], SEEN)) and not len(places(frames[3], DREAMT))
    last = frames[-1]
    assert places(last, SEEN)[:, 1].max() < places(last, DREAMT)[:, 1].min()


def test_a_shorter_window_keeps_the_scale_of_time():
    short = chart(Curve("x", np.zeros(5), np.ones(5)), EYES[:5], (0.0, 1.0), SIZE, 10)
    assert len(short) == 5 and places(short[-1], TRUTH)[:, 1].max() < 45


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_numbers_that_cannot_be_drawn_do_no_harm(bad):
    curve = Curve("x", np.linspace(0, 1, 4), np.array([0.0, bad, bad, 1.0]))
    low, high = limits([curve])
    assert -1 <= low < high <= 2
    assert chart(curve, np.zeros(4, bool), (low, high), SIZE, 4).shape == (4, 40, 80, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_there_are_gaps_where_a_truth_or_a_dream_has_no_number(bad):
    values = np.linspace(0, 1, 10)
    torn = np.where((values > 0.4) & (values < 0.8), bad, values)
    span = limits([Curve("x", torn, torn)])
    assert span == (0.0, 1.0)
    for curve, colour in ((Curve("x", torn, np.zeros(10)), TRUTH), (Curve("x", np.zeros(10), torn), DREAMT)):
        frames = chart(curve, np.zeros(10, bool), span, SIZE, 10)
        columns = set(places(frames[-1][:30], colour)[:, 1])
        assert columns & set(range(28)) and columns & set(range(60, 80)) and not columns & set(range(33, 55))
        assert not len(places(frames[6][:10], colour))  # nor a dot while it lasts


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_scale_of_what_has_no_number_at_all_can_be_written(bad):
    for truth, dreamt in ((bad, bad), (bad, 3.0), (3.0, bad)):
        span = limits([Curve("x", np.full(4, truth), np.full(4, dreamt))], least=0.1)
        middle = 3.0 if 3.0 in (truth, dreamt) else 0.0
        assert span == pytest.approx((middle - 0.05, middle + 0.05))
        assert axis("x", span, 90, 40).shape == (40, 90, 3)


def test_one_step_can_be_drawn():
    assert chart(Curve("x", np.zeros(1), np.ones(1)), EYES[:1], (0.0, 1.0), SIZE, 1).shape == (1, 40, 80, 3)


def test_limits_hold_all_curves_and_cut_dreams_that_go_astray():
    near = [Curve("x", np.array([0.0, 1.0]), np.array([0.5, 1.5])), Curve("x", np.array([-1.0, 0.0]), np.zeros(2))]
    assert limits(near) == (-1.0, 1.5)
    far = [Curve("x", np.array([0.0, 1.0]), np.array([-50.0, 100.0]))]
    assert limits(far) == (-1.0, 2.0)


def test_limits_are_never_closer_than_asked_for_and_never_equal():
    flat = [Curve("x", np.full(3, 5.0), np.full(3, 5.0))]
    low, high = limits(flat)
    assert low < 5.0 < high
    assert limits(flat, least=0.5) == (4.75, 5.25)


def test_words_stand_one_after_another_in_their_colours():
    strip = text([("", TRUTH), ("seen", SEEN), ("dreamt", DREAMT)], 120)
    assert strip.shape == (18, 120, 3)
    right = [places(strip, colour)[:, 1].max() for colour in (TRUTH, SEEN, DREAMT)]
    left = [places(strip, colour)[:, 1].min() for colour in (TRUTH, SEEN, DREAMT)]
    assert left[0] < right[0] < left[1] < right[1] < left[2] < right[2] < 119


def test_an_axis_shows_the_ends_of_its_scale_where_there_is_one():
    plain, scaled = axis("reward", None, 90, 40), axis("reward", (0.0, 1.0), 90, 40)
    corner = np.s_[:12, 60:]
    assert (plain[corner] == BACKGROUND).all() and not (scaled[corner] == BACKGROUND).all()


@pytest.mark.parametrize(
    ("number", "span", "words"),
    [(1.0, 2.0, "1.00"), (-0.001, 2.0, "0.00"), (-0.5, 2.0, "-0.50"), (0.1234, 0.05, "0.1234"), (512.3, 900.0, "512"),
     (2.5e6, 5e6, "2.5e+06"), (3.0, 0.0, "3")],
)  # fmt: skip
def test_figures_have_the_digits_their_scale_deserves(number, span, words):
    assert figure(number, span) == words
