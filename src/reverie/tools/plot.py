"""Learning curves drawn with matplotlib, without a screen."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from ..config.arguments import PlotArguments
from ..config.errors import UserError, extra
from ..config.whole import write_whole
from ..log.disk import writing
from .curves import Band, band
from .panels import Chart, Curve, Panel
from .published import Published

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7a00")
"""Told apart by colour-blind people too (Okabe and Ito's, the yellow darker)."""
STYLES = ("-", "--", ":", "-.")
"""Of further curves in the same colours."""
GRAY = "#555555"
FORMATS = (".png", ".svg", ".pdf")
COLUMNS = 3
FEW = 30
"""A curve of at most so many points shows them."""
REFERENCE_SMOOTH = 0.05
ROOM = 1.25
"""Published points are drawn up to so many times the length of the runs."""
LONG = {"hours": 7200.0, "minutes": 120.0}
"""Unit of time -> the seconds from which it is used."""


def draw(chart: Chart, arguments: PlotArguments) -> Any:
    """The figure of a chart."""
    columns = min(COLUMNS, len(chart.panels))
    rows = math.ceil(len(chart.panels) / columns)
    figure = matplotlib("figure").Figure(figsize=(6.4 * columns, 4.2 * rows), layout="constrained")
    colours = colours_of(chart)
    for place, panel in zip(figure.subplots(rows, columns, squeeze=False).flat, chart.panels):
        _panel(place, panel, arguments.x, colours)
        place.set(title=panel.task, ylabel=chart.metric)
    for unused in figure.axes[len(chart.panels) :]:
        unused.set_axis_off()
    if arguments.title:
        figure.suptitle(arguments.title)
    return figure


def matplotlib(part: str) -> Any:
    """A part of matplotlib."""
    try:
        return importlib.import_module(f"matplotlib.{part}")
    except ImportError as error:
        raise UserError(f"matplotlib is not installed: {extra('plot')}") from error


def colours_of(chart: Chart) -> dict[str, tuple[str, str]]:
    """Colour and style by label, the same in all panels."""
    labels = dict.fromkeys(curve.label for panel in chart.panels for curve in panel.curves)
    return {
        label: (COLOURS[i % len(COLOURS)], STYLES[i // len(COLOURS) % len(STYLES)]) for i, label in enumerate(labels)
    }


def _panel(place: Any, panel: Panel, x: str, colours: dict[str, tuple[str, str]]) -> None:
    last = max(curve.band.x[-1] for curve in panel.curves)
    unit = next((unit for unit, least in LONG.items() if x == "time" and last > least), "")
    scale = {"hours": 3600.0, "minutes": 60.0}.get(unit, 1.0)
    for curve in panel.curves:
        _curve(place, curve, scale, *colours[curve.label])
    for number, reference in enumerate(panel.references):
        _reference(place, reference, STYLES[1 + number % 3], _reach(panel, x, last))
    place.set_xlabel(f"time ({unit or 'seconds'})" if x == "time" else x)
    if x != "time":
        place.xaxis.set_major_formatter(matplotlib("ticker").EngFormatter(sep=""))
    place.grid(alpha=0.25)
    place.spines[["top", "right"]].set_visible(False)
    place.legend(frameon=False, fontsize="small")


def _reach(panel: Panel, x: str, last: float) -> tuple[float, float]:
    """How many frames an x is worth, and how many of them are shown; 0 where x does not count frames."""
    frames = {"frames": 1.0, "steps": panel.frames_per_step}.get(x, 0.0)
    return frames, ROOM * last * frames


def _curve(place: Any, curve: Curve, scale: float, colour: str, style: str) -> None:
    """A line with its band; thin and without a band where some of its runs are not there (any more)."""
    shown, x = curve.band, curve.band.x / scale
    label = f"{curve.label} ({curve.runs} runs)" if curve.runs > 1 else curve.label
    whole = shown.count == curve.runs
    marker = "." if len(x) <= FEW else ""
    place.plot(x, np.where(whole, shown.mean, np.nan), style, color=colour, marker=marker, label=label)
    if not whole.all():
        place.plot(x, shown.mean, style, color=colour, linewidth=0.7)
    place.fill_between(x, shown.low, shown.high, where=whole, color=colour, alpha=0.2, linewidth=0)


def _reference(place: Any, reference: Published, style: str, reach: tuple[float, float]) -> None:
    """Published scores up to where the runs are; as a level, if they are of much longer ones or x is no count."""
    smooth = REFERENCE_SMOOTH if max(len(run.x) for run in reference.series) > FEW else 0.0
    found: Band = band(reference.series, smooth, "minmax")
    frames, most = reach
    near = found.x <= most
    if not near.any():
        label = f"{reference.method}: {found.mean[-1]:g} at {found.x[-1]:,.0f} frames"
        place.axhline(found.mean[-1], color=GRAY, linestyle=style, linewidth=1, label=label)
        return
    x, marker = found.x[near] / frames, "." if near.sum() <= FEW else ""
    place.plot(x, found.mean[near], style, color=GRAY, marker=marker, linewidth=1, label=reference.method)
    if len(reference.series) > 1:
        place.fill_between(x, found.low[near], found.high[near], color=GRAY, alpha=0.12, linewidth=0)


def checked(out: str) -> Path:
    """The path of a picture that can be written."""
    path = Path(out)
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--out {out}: a picture ends in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {path.parent}")
    return path


def save(figure: Any, path: Path) -> None:
    """Write the figure; the same figure gives the same file."""
    form = path.suffix.lower()[1:]
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    settings = importlib.import_module("matplotlib").rc_context({"svg.hashsalt": "reverie"})
    with settings, writing(path, "make room or choose another --out"):
        write_whole(path, lambda file: figure.savefig(file, format=form, dpi=150, metadata=metadata))
