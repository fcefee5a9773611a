"""Learning curves: points of single runs, and the mean of several with a band around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .records import Record

Kind = Literal["minmax", "stderr", "none"]
X = {"steps": "step", "frames": "frames", "time": "time", "updates": "updates"}
"""What the horizontal axis may show -> its name in a log."""
POINTS = 300
"""Curves with more points than this are drawn with so many, each the mean of those it stands for."""
SLACK = 0.02
"""A run counts as there for this share of the axis beyond its first and last point."""


@dataclass(frozen=True)
class Series:
    """Points of one run, by rising x."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Band:
    """Several runs as one curve: their mean, what lies around it, and how many of them are there at each x."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray


def series(record: Record, metric: str, x: str) -> Series:
    """The values of a metric in a run's log; what is null or missing is left out."""
    lines = (line for line in record.lines if line.get(X[x]) is not None and line.get(metric) is not None)
    return made([(line[X[x]], line[metric]) for line in lines])


def made(points: Sequence[tuple[float, float]]) -> Series:
    """Points in any order as a series."""
    ordered = np.array(sorted(points, key=lambda point: point[0]), dtype=float).reshape(-1, 2)
    return Series(ordered[:, 0], ordered[:, 1])


def band(runs: Sequence[Series], smooth: float, kind: Kind) -> Band:
    """The mean of runs that have points; each of its points averages over a share `smooth` of the axis before it."""
    at = np.unique(np.concatenate([run.x for run in runs]))
    span = at[-1] - at[0]
    width = smooth * span
    if len(at) > POINTS:
        at = np.linspace(at[0], at[-1], POINTS)
        width = max(width, span / (POINTS - 1))
    values = np.ma.masked_invalid(np.stack([sampled(run, at, width, SLACK * span) for run in runs]))  # (R, N)
    mean, count = values.mean(0), values.count(0)
    if kind == "minmax":
        low, high = values.min(0), values.max(0)
    else:
        error = values.std(0) / np.sqrt(np.maximum(1, count - 1)) if kind == "stderr" else 0.0
        low, high = mean - error, mean + error
    there = count > 0
    mean, low, high = (np.ma.getdata(each)[there] for each in (mean, low, high))
    return Band(at[there], mean, low, high, count[there])


def sampled(run: Series, at: np.ndarray, width: float, slack: float) -> np.ndarray:
    """A run at some x: the mean of its points in (x - width, x], between them a straight line, NaN where it is not."""
    sums = np.concatenate([[0.0], np.cumsum(run.y)])
    first, last = (np.searchsorted(run.x, place, side="right") for place in (at - width, at))
    count = last - first
    means = (sums[last] - sums[first]) / np.maximum(1, count)
    there = (at >= run.x[0] - slack) & (at <= run.x[-1] + slack)
    return np.where(there, np.where(count > 0, means, np.interp(at, run.x, run.y)), np.nan)
