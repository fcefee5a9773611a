"""The film of a dream: truth, prediction and error above each other, several windows side by side, curves beneath."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..world.dream import Dream, Pair
from .charts import BACKGROUND, DREAMT, FAINT, SEEN, TEXT, TRUTH, Colour, Curve, axis, chart, finite, limits, text
from .video import downscale, rgb, upscale

FPS = 10
"""Frames per second of a dream: slow enough to compare."""
COLUMNS = 4
"""Windows side by side at most."""
MIN_SIDE, MAX_SIDE = 128, 256
"""Pixels of images, which are enlarged or reduced by whole factors."""
CHART_WIDTH = 260
"""Pixels of charts that no image gives its width."""
CHART_HEIGHT = {True: 46, False: 60}
"""Pixels of charts beneath images, and without any."""
GUTTER, GAP, BORDER = 96, 4, 3
ENTRIES = {True: 3, False: 6}
"""Curves of vectors that are shown beneath images, and without any."""
LEAST = 0.1
"""Least height of the scale of rewards and values: noise about 0 must not look like something."""

FRAME: Colour = (84, 84, 90)


@dataclass(frozen=True)
class Scene:
    """One window of a dream as arrays."""

    seen: np.ndarray
    """Which rows (T,) were shown to the model."""
    images: dict[str, tuple[np.ndarray, np.ndarray]]
    """Truth and dream (T, h, w, c) in bytes."""
    vectors: dict[str, tuple[np.ndarray, np.ndarray]]
    """Truth and dream (T, n)."""
    numbers: dict[str, tuple[np.ndarray, np.ndarray]]
    """Truth and dream (T,)."""


def scenes(dream: Dream, count: int = COLUMNS) -> list[Scene]:
    """The first windows of a dream."""

    def arrays(pairs: dict[str, Pair], scale: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {
            key: (_array(pair.truth[:count], scale), _array(pair.dreamt[:count], scale)) for key, pair in pairs.items()
        }

    seen, images = dream.seen[:count].cpu().numpy(), arrays(dream.images, 255)
    vectors, numbers = arrays(dream.vectors), arrays(dream.numbers)
    return [
        Scene(seen[i], *({key: (a[i], b[i]) for key, (a, b) in kind.items()} for kind in (images, vectors, numbers)))
        for i in range(len(seen))
    ]


def _array(values: Tensor, scale: int) -> np.ndarray:
    if scale:
        return (values * scale).nan_to_num(0.0).round().byte().cpu().numpy()  # NaN is black
    return values.float().cpu().numpy()


def film(shown: Sequence[Scene]) -> np.ndarray:
    """Frames (T, h, w, 3) of windows side by side; a shorter one holds its last frame."""
    steps = max(len(scene.seen) for scene in shown)
    lines = chosen(shown)
    spans = [_span(curves, shown[0]) for curves in zip(*lines)]
    columns = [_column(scene, curves, spans, steps) for scene, curves in zip(shown, lines)]
    gap = np.broadcast_to(np.array(BACKGROUND, np.uint8), (steps, *columns[0].shape[1:2], 2 * GAP, 3))
    parts = [_gutter(shown[0], lines[0], spans, steps)]
    for column in columns:
        held = np.broadcast_to(column[-1], (steps - len(column), *column.shape[1:]))
        parts += [np.concatenate([column, held]), gap]
    body = np.concatenate(parts, 2)
    legend = _legend(body.shape[2])
    return np.concatenate([body, np.broadcast_to(legend, (steps, *legend.shape))], 1)


def _span(curves: Sequence[Curve], scene: Scene) -> tuple[float, float]:
    """The scale of a curve in all windows."""
    name = curves[0].name
    return (0.0, 1.0) if name == "continue" else limits(curves, LEAST if name in scene.numbers else 0.0)


def chosen(shown: Sequence[Scene]) -> list[list[Curve]]:
    """The curves of each window: of vectors the entries that vary most, then reward, value and continue."""
    entries = [(key, i) for key, pair in shown[0].vectors.items() for i in range(pair[0].shape[-1])]
    spread = [_spread(np.concatenate([scene.vectors[key][0][:, i] for scene in shown])) for key, i in entries]
    most = sorted(np.argsort(spread, kind="stable")[::-1][: ENTRIES[bool(shown[0].images)]])
    found = []
    for scene in shown:
        vectors = [(*entries[number], *scene.vectors[entries[number][0]]) for number in most]
        curves = [Curve(_name(key, i, truth), truth[:, i], dreamt[:, i]) for key, i, truth, dreamt in vectors]
        order = [name for name in ("reward", "value", "continue") if name in scene.numbers]
        found.append(curves + [Curve(name, *scene.numbers[name]) for name in order])
    return found


def _spread(values: np.ndarray) -> float:
    """How much an entry varies, as far as it has numbers."""
    known = finite(values).astype(float)
    return float(known.std()) if known.size else 0.0


def _name(key: str, entry: int, values: np.ndarray) -> str:
    """What a curve is called: short enough for the gutter, its number whole."""
    return key[:12] if values.shape[-1] == 1 else f"{key[:9]} {entry}"


def _column(scene: Scene, curves: list[Curve], spans: list[tuple[float, float]], steps: int) -> np.ndarray:
    """One window (T, h, w, 3): what the model does now, images, charts."""
    cells = [cell for pair in scene.images.values() for cell in _cells(*pair, scene.seen)]
    width = max((cell.shape[2] for cell in cells), default=CHART_WIDTH)
    height = CHART_HEIGHT[bool(cells)]
    charts = [chart(curve, scene.seen, span, (width, height), steps) for curve, span in zip(curves, spans)]
    return _stacked([_header(scene.seen, width), *cells, *charts], width)


def _cells(truth: np.ndarray, dreamt: np.ndarray, seen: np.ndarray) -> list[np.ndarray]:
    """Truth, dream and error of an image, each in a frame; that of the dream tells whether the model sees."""
    error = warm(np.abs(rgb(truth).astype(np.int16) - rgb(dreamt)).max(-1))
    sized = [upscale(downscale(rgb(each), MAX_SIDE), MIN_SIDE) for each in (truth, dreamt, error)]
    eyes = np.where(seen[:, None], SEEN, DREAMT)
    plain = np.full_like(eyes, FRAME)
    return [framed(each, colours) for each, colours in zip(sized, (plain, eyes, plain))]


def warm(error: np.ndarray) -> np.ndarray:
    """Errors (T, h, w) from 0 to 255 as colours: black, then orange, then white."""
    part = error[..., None] / 127.5
    bright = (part - 1).clip(0, 1)
    return (part.clip(0, 1) * DREAMT * (1 - bright) + 255 * bright).astype(np.uint8)


def framed(frames: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Frames (T, h, w, 3) within a border, whose colour (T, 3) may change."""
    steps, height, width, _ = frames.shape
    around = np.empty((steps, height + 2 * BORDER, width + 2 * BORDER, 3), np.uint8)
    around[:] = colours[:, None, None]
    around[:, BORDER:-BORDER, BORDER:-BORDER] = frames
    return around


def _header(seen: np.ndarray, width: int) -> np.ndarray:
    """What the model does at each step (T, h, w, 3): it sees, or it has been dreaming for so many steps."""
    strips, dreamt = [], 0
    for row in seen:
        dreamt = 0 if row else dreamt + 1
        strips.append(text([("sees", SEEN)] if row else [("dreams", DREAMT), (f"{dreamt}", DREAMT)], width))
    return np.stack(strips)


def _stacked(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Rows (T, h, w, 3) below each other with gaps between, all as wide as the widest."""
    steps = len(rows[0])
    parts = []
    for row in rows:
        wide = np.full((steps, row.shape[1] + GAP, width, 3), BACKGROUND, np.uint8)
        wide[:, : row.shape[1], : row.shape[2]] = row
        parts.append(wide)
    return np.concatenate(parts, 1)


def _gutter(scene: Scene, curves: list[Curve], spans: list[tuple[float, float]], steps: int) -> np.ndarray:
    """The names of the rows (T, h, w, 3), to the left of all windows."""
    parts = [text([], GUTTER)]
    for key, pair in scene.images.items():
        own = "" if len(scene.images) == 1 else f"{key[:7]}: "
        for name, cell in zip(("truth", "dream", "error"), _cells(pair[0][:1], pair[1][:1], scene.seen[:1])):
            parts.append(axis(own + name, None, GUTTER, cell.shape[1]))
    parts += [axis(curve.name, span, GUTTER, CHART_HEIGHT[bool(scene.images)]) for curve, span in zip(curves, spans)]
    body = _stacked([part[None] for part in parts], GUTTER)
    return np.broadcast_to(body, (steps, *body.shape[1:]))


def _legend(width: int) -> np.ndarray:
    """What the colours mean (h, w, 3)."""
    words = [("", TRUTH), ("truth", TEXT), ("", SEEN), ("seen", TEXT), ("", DREAMT), ("dreamt", TEXT)]
    wider = [("the model sees a few steps, then goes on by itself", FAINT)] if width > 500 else []
    return text(words + wider, width, 22)
