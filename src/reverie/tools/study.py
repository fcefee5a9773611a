"""A study of Optuna: which settings to try next, what came of them, shared by any number of workers.

Workers may die at any moment, and any number of them may ask at once. So nothing depends on who asks: a trial's place
among those that are no repetitions tells whether it is still within the budget, which point of a grid it is, and the
seed of its sampler.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from ..config.space import Dimension, Space, Value

BEAT = 20.0
"""Seconds between two signs of life of a worker."""
SILENCE = 300.0
"""Seconds without a sign after which a worker of another machine is taken for dead."""
ATTEMPTS = 3
"""How often a trial is begun again whose worker has died."""


class FixedSampler(optuna.samplers.BaseSampler):
    """Gives one point, whatever was tried before."""

    def __init__(self, point: dict[str, Value]) -> None:
        self.point = point

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing: options are chosen one by one."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing."""
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The value at the point."""
        return self.point[param_name]


@dataclass(frozen=True)
class Chooser:
    """How points are chosen: one after another from a list if there is one, else by a sampler."""

    space: Space
    trials: int
    sampler: str = "tpe"
    seed: int = 0
    points: tuple[dict[str, Value], ...] = ()

    def of(self, place: int) -> optuna.samplers.BaseSampler:
        """The sampler of the trial at that place, which the seed and earlier trials decide."""
        if self.points:
            return FixedSampler(self.points[place])
        seed = int(np.random.SeedSequence([self.seed, place]).generate_state(1)[0])
        if self.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


class Search:
    """A study as one worker sees it."""

    def __init__(self, study: optuna.Study, chooser: Chooser) -> None:
        self.study, self.chooser = study, chooser
        self.worker = f"{os.uname().nodename}:{os.getpid()}:{birth(os.getpid())}"

    def claim(self) -> Trial | None:
        """The next trial for this worker to run; None if all are given out."""
        self.release_dead()
        everything = self.study.get_trials(deepcopy=False)
        waiting = any(trial.state == TrialState.WAITING for trial in everything)
        if not waiting and sum(map(fresh, everything)) >= self.chooser.trials:
            return None
        trial = self.study.ask()
        trial.set_user_attr("worker", self.worker)
        trial.set_user_attr("beat", time.time())
        place = self.place(trial)
        if place >= self.chooser.trials and "retry_of" not in trial.user_attrs:  # others were quicker
            trial.set_user_attr("superfluous", True)
            self.study.tell(trial, state=TrialState.FAIL)
            return None
        self.study.sampler = self.chooser.of(place)
        for name, dimension in self.chooser.space.items():
            suggest(trial, name, dimension)
        return trial

    def place(self, trial: Trial) -> int:
        """How many trials of the budget came before this one, or before the one whose place it takes."""
        origin = trial.user_attrs.get("origin", trial.number)
        return sum(fresh(each) for each in self.study.get_trials(deepcopy=False) if each.number < origin)

    def report(self, trial: Trial, number: int, value: float) -> bool:
        """Take a trial's value at its evaluation of that number; whether to end the trial early."""
        trial.report(value, number)
        return not self.chooser.points and trial.should_prune()

    def beat(self, trial: Trial) -> None:
        """Say that a trial's worker is alive."""
        trial.set_user_attr("beat", time.time())

    def complete(self, trial: Trial, value: float) -> None:
        """A trial has its score."""
        self.study.tell(trial, value)

    def prune(self, trial: Trial) -> None:
        """A trial was ended early."""
        self.study.tell(trial, state=TrialState.PRUNED)

    def fail(self, trial: Trial, reason: str) -> None:
        """A trial broke."""
        trial.set_user_attr("error", reason[:500])
        self.study.tell(trial, state=TrialState.FAIL)

    def postpone(self, trial: Trial) -> None:
        """A trial was interrupted: another takes its place and goes on where it stopped."""
        self.study.tell(trial, state=TrialState.FAIL)
        self._again(trial.number, trial.params, trial.user_attrs)

    def release_dead(self) -> None:
        """Begin trials again whose worker has died."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if living(trial):
                continue
            with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):  # another was quicker
                self.study.tell(trial.number, state=TrialState.FAIL)
                if trial.user_attrs.get("attempt", 1) < ATTEMPTS:
                    self._again(trial.number, trial.params, trial.user_attrs, attempt=1)

    def _again(self, number: int, params: dict[str, Any], attributes: dict[str, Any], attempt: int = 0) -> None:
        kept = {"retry_of": number, "origin": attributes.get("origin", number)}
        kept["attempt"] = attributes.get("attempt", 1) + attempt
        if "folder" in attributes:
            kept["folder"] = attributes["folder"]
        self.study.enqueue_trial(params, user_attrs=kept)

    def trials(self) -> list[FrozenTrial]:
        """All trials but those that another has taken the place of."""
        everything = self.study.get_trials()
        replaced = {trial.user_attrs.get("retry_of") for trial in everything}
        return [t for t in everything if t.number not in replaced and "superfluous" not in t.user_attrs]


def fresh(trial: FrozenTrial) -> bool:
    """Whether a trial is one of the budget, and not in the place of another."""
    return "retry_of" not in trial.user_attrs and "superfluous" not in trial.user_attrs


def suggest(trial: Trial, name: str, dimension: Dimension) -> Value:
    """The value that a trial has of an option."""
    if dimension.choices:
        return trial.suggest_categorical(name, dimension.choices)
    low, high, log, step = dimension.low, dimension.high, dimension.log, dimension.step
    if dimension.whole:
        return trial.suggest_int(name, int(low), int(high), log=log, step=int(step or 1))
    return trial.suggest_float(name, low, high, log=log, step=step)


def living(trial: FrozenTrial) -> bool:
    """Whether the worker of a running trial is still there, as far as this machine can tell."""
    worker = trial.user_attrs.get("worker")
    if worker is None:  # it has only just been given out, or its worker died that moment
        started = trial.datetime_start
        return started is None or time.time() - started.timestamp() < SILENCE
    host, pid, born = worker.rsplit(":", 2)
    if host == os.uname().nodename:
        return birth(int(pid)) == born
    return time.time() - trial.user_attrs.get("beat", 0.0) < SILENCE


def birth(pid: int) -> str:
    """When a process started, as the system counts; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
