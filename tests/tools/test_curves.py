"""Curves: points of runs, their mean and band."""

import numpy as np
import pytest

from reverie.tools.curves import POINTS, band, made, sampled, series
from reverie.tools.records import Record


def test_the_band_of_runs_with_the_same_points_is_their_mean_and_extremes():
    found = band([made([(0, 0), (10, 10)]), made([(0, 2), (10, 14)])], 0.0, "minmax")
    assert found.x.tolist() == [0, 10]
    assert found.mean.tolist() == [1, 12]
    assert found.low.tolist() == [0, 10] and found.high.tolist() == [2, 14]


def test_the_standard_error_is_that_of_the_mean():
    found = band([made([(0, value)]) for value in (1.0, 2.0, 6.0)], 0.0, "stderr")
    assert found.mean[0] == 3.0
    assert found.high[0] - 3.0 == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    alone = band([made([(0, 5.0), (1, 6.0)])], 0.0, "stderr")
    assert (alone.low == alone.mean).all()


def test_runs_between_whose_points_another_has_one_are_interpolated():
    found = band([made([(0, 0), (10, 10)]), made([(0, 0), (5, 0), (10, 0)])], 0.0, "none")
    assert found.mean.tolist() == [0, 2.5, 5]


def test_where_a_run_has_ended_the_others_go_on_and_the_count_tells():
    found = band([made([(0, 0), (50, 0)]), made([(0, 2), (50, 2), (100, 4)])], 0.0, "minmax")
    assert found.mean.tolist() == [1, 1, 4]
    assert found.count.tolist() == [2, 2, 1]


def test_a_run_that_ends_a_little_earlier_is_still_there():
    assert band([made([(0, 0), (99, 0)]), made([(0, 2), (100, 2)])], 0.0, "none").count.tolist() == [2, 2, 2]


def test_smoothing_averages_over_what_lies_before():
    run = made([(x, y) for x, y in enumerate([0, 0, 6, 0, 0])])
    assert sampled(run, np.array([1.0, 2.0, 3.0, 4.0]), 2.0, 0.0).tolist() == [0, 3, 3, 0]


def test_many_points_become_few_and_none_is_lost():
    values = np.random.default_rng(0).normal(size=10_000)
    found = band([made(list(enumerate(values)))], 0.0, "none")
    assert len(found.x) == POINTS
    assert found.mean[1:].mean() == pytest.approx(values[1:].mean(), abs=1e-3)


def test_a_series_leaves_out_what_is_null_or_missing(tmp_path):
    lines = [{"step": 1, "a": 1.0}, {"step": 2, "a": None}, {"step": 3}, {"step": 4, "a": 3.0}]
    found = series(Record(tmp_path, {}, lines), "a", "steps")
    assert found.x.tolist() == [1, 4] and found.y.tolist() == [1, 3]
    assert not len(series(Record(tmp_path, {}, lines), "a", "frames").x)
