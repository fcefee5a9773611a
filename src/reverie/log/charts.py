"""Charts for videos: curves of truth and dream that grow as time goes on, drawn small and smooth.

Our own instead of a plotting library: a film needs hundreds of tiny pictures, which take a second this way, and runs
need no further package. The colours are told apart by colour-blind people too (Okabe and Ito's).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]

BACKGROUND: Colour = (20, 20, 22)
PLOT: Colour = (38, 38, 42)
PLOT_SEEN: Colour = (28, 46, 60)
"""Behind the rows that the model was shown."""
ZERO: Colour = (84, 84, 90)
TEXT: Colour = (205, 205, 205)
FAINT: Colour = (140, 140, 146)
TRUTH: Colour = (240, 240, 240)
SEEN: Colour = (86, 180, 233)
DREAMT: Colour = (230, 159, 0)

SMOOTH = 2
"""Curves are drawn this many times larger and then made smaller."""


@dataclass(frozen=True)
class Curve:
    """One number over time (T,), as it was and as it was dreamt; there is a gap where it is NaN or infinite."""

    name: str
    truth: np.ndarray
    dreamt: np.ndarray


def limits(curves: Sequence[Curve], least: float = 0.0) -> tuple[float, float]:
    """The lowest and the highest number that charts of these curves show, at least so far from each other.

    A dream that goes astray is cut off one range of the truth beyond it, so that the truth stays legible.
    """
    truth = finite(np.concatenate([curve.truth for curve in curves]))
    dreamt = finite(np.concatenate([curve.dreamt for curve in curves]))
    known = next((each for each in (truth, dreamt) if each.size), np.zeros(1))
    low, high = float(known.min()), float(known.max())
    room = max(high - low, least) or max(1.0, abs(high))
    if dreamt.size:
        low, high = min(low, max(float(dreamt.min()), low - room)), max(high, min(float(dreamt.max()), high + room))
    lacking = max(0.0, (least or 1e-6 * room) - (high - low)) / 2
    return low - lacking, high + lacking


def finite(values: np.ndarray) -> np.ndarray:
    """The numbers among them that can be drawn."""
    return values[np.isfinite(values)]


def chart(curve: Curve, seen: np.ndarray, span: tuple[float, float], size: tuple[int, int], steps: int) -> np.ndarray:
    """Frames (T, h, w, 3) in which a curve grows; `seen` (T,) colours the dream, `steps` fill the width (w, h)."""
    width, height = size[0] * SMOOTH, size[1] * SMOOTH
    canvas = Image.new("RGB", (width, height), PLOT)
    draw = ImageDraw.Draw(canvas)
    across = np.linspace(3 * SMOOTH, width - 4 * SMOOTH, max(2, steps))
    truth, dreamt = (_heights(values, span, height) for values in (curve.truth, curve.dreamt))
    _backdrop(draw, seen, span, across, height)
    frames = []
    for t in range(len(seen)):
        _stroke(draw, across, truth, t, TRUTH, 3 * SMOOTH)
        colour = SEEN if seen[t] else DREAMT
        if bool(seen[t]) == bool(seen[max(0, t - 1)]):  # no line where eyes are opened or closed: it is no prediction
            _stroke(draw, across, dreamt, t, colour, 2 * SMOOTH)
        frames.append(_with_dots(canvas, across[t], {truth[t]: TRUTH, dreamt[t]: colour}))
    return np.stack(frames)


def _heights(values: np.ndarray, span: tuple[float, float], height: int) -> np.ndarray:
    """Where numbers lie from the top, the greatest near 0; what leaves the span stays at its border, gaps are NaN."""
    low, high = span
    part = ((values.astype(float) - low) / (high - low)).clip(0, 1)
    border = 4 * SMOOTH
    return np.where(np.isfinite(values), height - border - part * (height - 2 * border), np.nan)


def _stroke(
    draw: ImageDraw.ImageDraw, across: np.ndarray, heights: np.ndarray, t: int, colour: Colour, width: int
) -> None:
    """Draw the newest piece of a curve: a point where it begins, nothing in a gap."""
    if np.isnan(heights[t]):
        return
    before = t - 1 if t and not np.isnan(heights[t - 1]) else t
    draw.line([(across[before], heights[before]), (across[t], heights[t])], colour, width)


def _backdrop(
    draw: ImageDraw.ImageDraw, seen: np.ndarray, span: tuple[float, float], across: np.ndarray, height: int
) -> None:
    half = (across[1] - across[0]) / 2
    for t in np.flatnonzero(seen):
        draw.rectangle((across[t] - half, 0, across[t] + half, height), PLOT_SEEN)
    if span[0] <= 0 <= span[1]:
        zero = float(_heights(np.zeros(1), span, height)[0])
        draw.line([(0, zero), (across[-1] + 4 * SMOOTH, zero)], ZERO, SMOOTH // 2)


def _with_dots(canvas: Image.Image, x: float, dots: dict[float, Colour]) -> np.ndarray:
    """The picture with dots where curves stand now, none for one in a gap, at its final size."""
    frame = canvas.copy()
    draw = ImageDraw.Draw(frame)
    radius = 2.5 * SMOOTH
    for y, colour in dots.items():
        if np.isnan(y):
            continue
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), colour)
    return np.asarray(frame.reduce(SMOOTH))


@cache
def letters(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font of that size, which takes a while to unpack."""
    return ImageFont.load_default(size)


def text(words: Sequence[tuple[str, Colour]], width: int, height: int = 18, size: int = 12) -> np.ndarray:
    """A strip (h, w, 3) with words one after another, each in its colour; an empty word is a bar of it."""
    picture = Image.new("RGB", (width, height), BACKGROUND)
    draw, font = ImageDraw.Draw(picture), letters(size)
    left = 3.0
    for word, colour in words:
        if word:
            draw.text((left, height / 2), word, colour, font, anchor="lm")
        else:
            draw.rectangle((left, height / 2 - 1, left + size, height / 2 + 1), colour)
        left += (font.getlength(word) or size) + size // 2
    return np.asarray(picture)


def axis(name: str, span: tuple[float, float] | None, width: int, height: int) -> np.ndarray:
    """What stands to the left of a row (h, w, 3): its name, and the ends of its scale where it has one."""
    picture = Image.new("RGB", (width, height), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    small = letters(10)
    draw.text((4, height / 2), name, TEXT, letters(12), anchor="lm")
    if span is not None:
        low, high = (figure(end, span[1] - span[0]) for end in span)
        draw.text((width - 4, 1), high, FAINT, small, anchor="rt")
        draw.text((width - 4, height - 2), low, FAINT, small, anchor="rb")
    return np.asarray(picture)


def figure(number: float, span: float) -> str:
    """A number with as many digits as its scale deserves."""
    if span <= 0 or abs(number) >= 1e5:
        return f"{number:.2g}"
    digits = int(np.clip(2 - np.floor(np.log10(span)), 0, 4))
    return f"{number:.{digits}f}".replace("-0." + "0" * digits, "0." + "0" * digits) if digits else f"{number:.0f}"
