"""What came of a sweep: a table, a CSV file with everything, and pictures."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from statistics import fmean
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ..config.arguments import PlotArguments
from ..config.whole import write_whole
from . import panels, plot, records, sweep_plots
from .groups import shown, shown_score
from .plan import BASE, Plan
from .trial import new_words

MOST = 20
"""Rows of the table that is printed."""


@dataclass(frozen=True)
class Row:
    """Trials that differ in the seed alone, which most often is one trial."""

    trials: tuple[FrozenTrial, ...]

    @property
    def done(self) -> list[FrozenTrial]:
        """The trials that came to their end."""
        return [trial for trial in self.trials if trial.state == TrialState.COMPLETE]

    @property
    def scores(self) -> list[float]:
        """Their scores."""
        return [trial.value for trial in self.done if trial.value is not None]

    @property
    def mean(self) -> float | None:
        """Their mean; None if there is none."""
        return fmean(self.scores) if self.scores else None


def ranked(trials: Sequence[FrozenTrial], minimize: bool) -> list[Row]:
    """Rows from the best to the worst, then those without a score."""
    seeds = any("seed" in trial.params for trial in trials)
    together: dict[Any, list[FrozenTrial]] = {}
    for trial in trials:
        rest = tuple((name, value) for name, value in sorted(trial.params.items()) if name != "seed")
        together.setdefault(rest if seeds else trial.number, []).append(trial)
    rows = [Row(tuple(each)) for each in together.values()]
    scored = [row for row in rows if row.mean is not None]
    scored.sort(key=lambda row: row.mean or 0.0, reverse=not minimize)
    return scored + [row for row in rows if row.mean is None]


def table(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """The rows as aligned lines."""
    options = [name for name in names if name != "seed"]
    cells = [["score", *options, "trials"]]
    for row in rows[:MOST]:
        score = shown_score(row.mean)
        if len(row.scores) > 1:
            score += f" ({shown_score(min(row.scores))} to {shown_score(max(row.scores))})"
        values = [shown(row.trials[0].params.get(name, "-")) for name in options]
        cells.append([score, *values, ", ".join(told(trial) for trial in row.trials)])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
    return lines + ([f"... {len(rows) - MOST} more"] if len(rows) > MOST else [])


WORDS = {"FAIL": "failed", "PRUNED": "ended early", "RUNNING": "running", "WAITING": "waiting"}


def told(trial: FrozenTrial) -> str:
    """A trial's number, and its state unless it came to its end."""
    word = WORDS.get(trial.state.name)
    return f"{trial.number} ({word})" if word else str(trial.number)


def save_csv(path: Path, trials: Sequence[FrozenTrial], names: Sequence[str]) -> None:
    """Every trial as a line of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["trial", "state", "score", *names, "folder", "error"])
    for trial in trials:
        about = trial.user_attrs
        values = [trial.params.get(name, "") for name in names]
        score = "" if trial.value is None else trial.value
        line = [trial.number, trial.state.name.lower(), score, *values, about.get("folder", ""), about.get("error", "")]
        writer.writerow(line)
    write_whole(path, lambda file: file.write(text.getvalue().encode()))


def report(plan: Plan, trials: Sequence[FrozenTrial], study: Any, reverie: str) -> list[str]:
    """Write the CSV file and the pictures; gives back the lines to print, in which `reverie` calls the command."""
    names = list(plan.space)
    rows = ranked(trials, plan.arguments.minimize)
    save_csv(plan.folder / "trials.csv", trials, names)
    lines = [f"{plan.arguments.metric}, {plan.arguments.score} of each trial:", *table(rows, names), ""]
    for trial in trials:
        if trial.state == TrialState.FAIL:
            lines.append(f"Trial {trial.number} failed: {trial.user_attrs.get('error', 'its worker died')}")
    if not rows or rows[0].mean is None:
        return [*lines, "No trial came to its end yet."]
    best = sorted(rows[0].done, key=lambda trial: trial.value or 0.0, reverse=not plan.arguments.minimize)[0]
    folder = plan.folder / best.user_attrs.get("folder", f"trial {best.number}")  # one may be added by hand
    host = best.user_attrs.get("worker", "another machine").partition(":")[0]
    where = f"{reverie} play --logdir {shlex.quote(str(folder))}" if folder.exists() else f"{folder.name} on {host}"
    options = {name: value for name, value in best.params.items() if name != "seed"}
    words = new_words(plan.folder / BASE, unused(Path(f"logdir/best-{plan.folder.absolute().name}")), options)
    lines += [f"Train it again:  {reverie} {shlex.join(words)}", f"Watch the best:  {where}"]
    return [*lines, *(f"Picture:         {path}" for path in pictures(plan, study, trials))]


def unused(folder: Path) -> Path:
    """The folder, with a number behind its name where there is one already."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(each for each in chain([folder], numbered) if not each.exists())


def pictures(plan: Plan, study: Any, trials: Sequence[FrozenTrial]) -> list[Path]:
    """The pictures of a sweep: curves of a grid, the way of a search."""
    if not plan.is_grid:
        return sweep_plots.save(plan, study, trials)
    arguments = PlotArguments(metric=plan.arguments.metric, published="none")
    folders = records.run_folders(plan.folder)  # those of this worker, where each has a folder of its own
    runs = [run for run in records.records(folders) if arguments.metric in run.metrics]
    if not runs:
        return []
    path = plan.picture("curves")
    plot.save(plot.draw(panels.chart(runs, arguments), arguments), path)
    return [path]
