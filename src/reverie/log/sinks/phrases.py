"""Figures as people read them."""

from __future__ import annotations

import math


def number(value: float) -> str:
    """A speed or count in few characters: 96, 5.4k, 1.2M."""
    if not math.isfinite(value):
        return "?"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def size(count: int) -> str:
    """Bytes in the largest unit that they fill: 179 bytes, 16.4 GB."""
    for least, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= least:
            return f"{count / least:.1f} {unit}"
    return f"{count} bytes"


def score(value: float) -> str:
    """A return, with one digit after the point."""
    return f"{value:,.1f}" if math.isfinite(value) else "?"


def metric(value: float) -> str:
    """A training metric with about three digits that tell."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf"
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:.1e}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, after the days where there are any: 0:00:12, 2d 3:04:05."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}d " * bool(days) + f"{hours}:{minutes:02d}:{rest:02d}"


def position(step: int, total: int) -> str:
    """The step, and the budget where there is one: 12,288/50,000."""
    return f"{step:,}/{total:,}" if total else f"{step:,}"
