"""What a picture of learning curves shows: a panel a task, a curve with a band for runs that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..config.arguments import PlotArguments
from ..config.errors import UserError, nearest
from . import published
from .curves import Band, band, series
from .groups import groups, shown_score
from .published import Published
from .records import Record

SCORES = ("eval/mean_return", "episode/return")
"""What is drawn unless something else is asked for: the first that the runs have a curve of."""
TRAINING_SMOOTH = 0.05
"""Share of the axis over which anything but evaluations is averaged; they are means already."""


@dataclass(frozen=True)
class Curve:
    """Some runs as one line."""

    label: str
    runs: int
    band: Band


@dataclass(frozen=True)
class Panel:
    """The curves of one task, and what is published for it."""

    task: str
    curves: tuple[Curve, ...]
    references: tuple[Published, ...]
    frames_per_step: float


@dataclass(frozen=True)
class Chart:
    """Everything a picture shows, and words about runs that it leaves out."""

    metric: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]


def chart(runs: Sequence[Record], arguments: PlotArguments) -> Chart:
    """What a picture of these runs shows."""
    metric = chosen(runs, arguments)
    drawn = [(run, series(run, metric, arguments.x)) for run in runs]
    notes = [f"{run.folder} has no {metric} yet: left out" for run, points in drawn if not len(points.x)]
    tasks: dict[str, list[Record]] = {}
    for run, points in drawn:
        if len(points.x):
            tasks.setdefault(str(run.options["task"]), []).append(run)
    panels = [panel(task, members, metric, arguments) for task, members in tasks.items()]
    return Chart(metric, tuple(relabelled(panels, arguments.labels)), tuple(notes))


def chosen(runs: Sequence[Record], arguments: PlotArguments) -> str:
    """The metric to draw; an error says which there are."""
    there = sorted(set().union(*(run.metrics for run in runs)))
    if not there:
        raise UserError(f"nothing is logged yet in {', '.join(str(run.folder) for run in runs[:3])}: train a while")
    wanted = (arguments.metric,) if arguments.metric else SCORES
    for least in (2, 1):
        for name in wanted:
            if any(len(series(run, name, arguments.x).x) >= least for run in runs):
                return name
    raise UserError(f"no run has {' or '.join(wanted)}: {nearest(wanted[0], there)} (--metric list shows all)")


def panel(task: str, runs: Sequence[Record], metric: str, arguments: PlotArguments) -> Panel:
    """The curves of the runs of one task."""
    smooth = arguments.smooth
    if smooth is None:
        smooth = 0.0 if metric.startswith("eval/") else TRAINING_SMOOTH
    curves = []
    for label, members in groups(runs, arguments.group).items():
        points = [series(run, metric, arguments.x) for run in members]
        curves.append(Curve(label, len(members), band(points, smooth, arguments.band)))
    scored = metric in (*SCORES, "episode/recent_mean")
    references = compared(arguments.published, runs) if scored or arguments.published != "known" else []
    return Panel(task, tuple(curves), tuple(references), frames_per_step(runs))


def compared(source: str, runs: Sequence[Record]) -> list[Published]:
    """What is published for the task of these runs, each once, by the table or by a file."""
    if source == "none":
        return []
    if source == "known":
        return list({each.method: each for run in runs for each in published.known(run.options)}.values())
    return published.from_file(Path(source), str(runs[0].options["task"]))


def frames_per_step(runs: Sequence[Record]) -> float:
    """How many frames a step of these runs has, by their logs."""
    last = [run.lines[-1] for run in runs]
    return max((line.get("frames") or line["step"]) / max(1, line["step"]) for line in last)


def relabelled(panels: Sequence[Panel], names: Sequence[str]) -> list[Panel]:
    """The panels with the curves called by these names, in order; without names they stay."""
    if not names:
        return list(panels)
    old = list(dict.fromkeys(curve.label for each in panels for curve in each.curves))
    if len(names) != len(old):
        raise UserError(f"--labels has {len(names)} names for {len(old)} curves: {' | '.join(old)}")
    new = dict(zip(old, names))
    return [
        replace(each, curves=tuple(replace(curve, label=new[curve.label]) for curve in each.curves)) for each in panels
    ]


def summary(found: Chart, x: str) -> list[str]:
    """A line a curve: where it ends, how many runs it has there, and the last mean with its band."""
    lines = []
    for each in found.panels:
        for curve in each.curves:
            shown, unit = curve.band, "s" if x == "time" else x
            at, mean, low, high = shown.x[-1], shown.mean[-1], shown.low[-1], shown.high[-1]
            spread = f" ({shown_score(low)} to {shown_score(high)})" if high > low else ""
            lines.append(
                f"{each.task}, {curve.label}: {shown_score(mean)}{spread} at {at:,.0f} {unit}, {runs_told(curve)}"
            )
    return lines


def runs_told(curve: Curve) -> str:
    """How many runs a curve has, and how many of them reach its end."""
    there = int(curve.band.count[-1])
    return f"{curve.runs} run{'s' * (curve.runs > 1)}" + (f", {there} of them that far" if there < curve.runs else "")
