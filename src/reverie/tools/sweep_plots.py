"""Pictures of a search: how it went, which options mattered, and which values went together.

Drawn here instead of by Optuna's own functions: those change matplotlib's global state, and every number comes from
the study in any case.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from ..config.space import Dimension
from . import plot
from .groups import shown
from .plan import Plan

ENOUGH = 4
"""Trials with a score that the importance of options needs."""


def save(plan: Plan, study: optuna.Study, trials: Sequence[FrozenTrial]) -> list[Path]:
    """Write the pictures there are enough trials for; gives back their paths."""
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    drawn: dict[str, Callable[[Any], None]] = {
        "history": lambda place: history(place, trials, plan),
    }
    if len(plan.space) > 1:
        drawn["parallel"] = lambda place: parallel(place, done, plan)
    if len(done) >= ENOUGH:
        drawn["importance"] = lambda place: importance(place, study)
    paths = []
    for name, draw in drawn.items():
        figure = plot.matplotlib("figure").Figure(figsize=(max(6.4, 1.6 * len(plan.space)), 4.2), layout="constrained")
        place = figure.subplots()
        draw(place)
        place.spines[["top", "right"]].set_visible(False)
        plot.save(figure, plan.picture(name))
        paths.append(plan.picture(name))
    return paths


def history(place: Any, trials: Sequence[FrozenTrial], plan: Plan) -> None:
    """Scores over trials, the best so far, and where trials were ended early."""
    done = [(trial.number, trial.value or 0.0) for trial in trials if trial.state == TrialState.COMPLETE]
    early = [
        (trial.number, trial.intermediate_values[max(trial.intermediate_values)])
        for trial in trials
        if trial.state == TrialState.PRUNED and trial.intermediate_values
    ]
    better = np.minimum if plan.arguments.minimize else np.maximum
    place.plot(*zip(*done), "o", color=plot.COLOURS[0], label="score")
    place.step([x for x, _ in done], better.accumulate([y for _, y in done]), where="post", color=plot.COLOURS[1])
    if early:
        place.plot(*zip(*early), "x", color=plot.GRAY, label="ended early")
    place.set(xlabel="trial", ylabel=plan.arguments.metric, title="best so far")
    place.legend(frameon=False, fontsize="small")
    place.grid(alpha=0.25)


def importance(place: Any, study: optuna.Study) -> None:
    """How much of the difference between scores each option explains (PED-ANOVA)."""
    with warnings.catch_warnings(action="ignore"):  # few trials make it say how rough it is
        found = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
    names = list(reversed(found))
    place.barh(names, [found[name] for name in names], color=plot.COLOURS[0])
    place.set(xlabel="importance", title="which options matter")


def parallel(place: Any, done: Sequence[FrozenTrial], plan: Plan) -> None:
    """Each trial as a line through its values, the best ones last and brightest."""
    colours = plot.matplotlib("cm").ScalarMappable(cmap="viridis_r" if plan.arguments.minimize else "viridis")
    colours.set_clim(min(_scores(done)), max(_scores(done)))
    columns = list(plan.space.items())
    order = sorted(done, key=lambda trial: trial.value or 0.0, reverse=plan.arguments.minimize)
    for trial in order:
        heights = [height(dimension, trial.params[name]) for name, dimension in columns]
        place.plot(range(len(columns)), heights, color=colours.to_rgba(trial.value), alpha=0.8)
    for number, (_, dimension) in enumerate(columns):
        place.axvline(number, color=plot.GRAY, linewidth=0.5)
        for value in marks(dimension):
            place.text(number, height(dimension, value), f" {shown(value)}", fontsize="x-small", va="center")
    place.set_xticks(range(len(columns)), [name for name, _ in columns])
    place.set_yticks([])
    place.set_title("values that went together")
    place.figure.colorbar(colours, ax=place, label=plan.arguments.metric)


def _scores(done: Sequence[FrozenTrial]) -> list[float]:
    return [trial.value for trial in done if trial.value is not None]


def height(dimension: Dimension, value: Any) -> float:
    """Where a value lies on its axis, from 0 to 1."""
    if dimension.choices:
        return dimension.choices.index(value) / max(1, len(dimension.choices) - 1)
    if dimension.log:
        return math.log(value / dimension.low) / math.log(dimension.high / dimension.low)
    return (value - dimension.low) / (dimension.high - dimension.low)


def marks(dimension: Dimension) -> list[Any]:
    """The values written beside an axis."""
    return list(dimension.choices) or [dimension.low, dimension.high]
