"""The sweep: trials side by side, each a process, watched, ended early where they are bad, and written down."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.study import StudyDirection
from optuna.trial import Trial

from ..config import space as spaces
from ..config.errors import UserError
from ..training.interrupt import Interrupt
from ..training.lock import in_use
from . import trial as trials
from .groups import shown, shown_score
from .plan import BASE, Plan, keep_trials, made, save
from .storage import open_storage
from .study import BEAT, Chooser, Search
from .trial import Process

POLL = 0.5
"""Seconds between two looks at the trials."""
HOPELESS = 3
"""A sweep ends when so many trials fail before any has succeeded."""
PATIENCE = 60.0
"""Seconds that the process of a dead worker has to leave the folder of its trial."""

Say = Callable[[str], None]


def open_search(plan: Plan) -> Search:
    """The study of a sweep, made or joined; the folder of a new sweep is made too."""
    if not plan.arguments.storage:
        made(plan.folder)
    storage = open_storage(plan.storage)
    direction = StudyDirection.MINIMIZE if plan.arguments.minimize else StudyDirection.MAXIMIZE
    study = optuna.create_study(
        storage=storage, study_name=plan.study, direction=direction, pruner=pruner(plan), load_if_exists=True
    )
    if study.user_attrs.get("identity", plan.identity()) != plan.identity():
        raise UserError(f"the study {plan.study!r} is of another sweep: name another --study, or use the same options")
    study.set_user_attr("identity", plan.identity())
    if plan.arguments.resume:
        keep_trials(plan)
    else:
        save(plan)
    points = tuple(spaces.combinations(plan.space)) if plan.is_grid else ()
    arguments = plan.arguments
    return Search(study, Chooser(plan.space, arguments.trials, arguments.sampler, plan.base.seed, points))


def pruner(plan: Plan) -> optuna.pruners.BasePruner:
    """What ends bad trials early; evaluations are its clock."""
    kind, count = plan.arguments.pruner, plan.evaluations
    if kind == "none" or plan.is_grid or count < 2:
        return optuna.pruners.NopPruner()
    if kind == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=count)
    return optuna.pruners.MedianPruner(n_startup_trials=5, n_min_trials=3)


@dataclass
class Attempt:
    """A trial under way."""

    trial: Trial
    process: Process
    slot: int
    reported: int = 0
    """Number of the last evaluation that the study knows."""
    pruned: bool = False
    beat: float = field(default_factory=time.monotonic)


class Sweep:
    """One worker of a sweep: runs trials until none is left or someone interrupts it."""

    def __init__(self, plan: Plan, search: Search, say: Say) -> None:
        self.plan, self.search, self.say = plan, search, say
        self.running: list[Attempt] = []
        self.stop = Interrupt()
        self.failures: list[str] = []
        self.succeeded = 0
        self.drained = False
        """Whether the study had no trial left when last asked."""

    @property
    def jobs(self) -> int:
        """How many trials run at once."""
        return self.plan.arguments.jobs or max(1, len(self.plan.arguments.gpus))

    @property
    def beside(self) -> dict[str, Any]:
        """Options of trials that share a machine: they have no processes that compile for them."""
        return {"run.compilers": 0} if self.jobs > 1 and self.plan.base.run.compilers is None else {}

    def run(self) -> None:
        """Run trials until none is left; an interruption has them save and leaves them for later."""
        with self.stop:
            try:
                self.fill()
                while self.running:
                    time.sleep(POLL)
                    self.look()
                    self.fill()
            except StorageInternalError as error:
                reason = " ".join(str(error.__cause__ or error).split())[:200]
                raise UserError(f"the study does not answer ({reason}): when it does, --resume goes on") from error
            finally:
                self.abandon()

    def fill(self) -> None:
        """Start trials in free slots."""
        while not (self.stop.raised or self.drained) and len(self.running) < self.jobs:
            trial = self.search.claim()
            if trial is None:
                self.drained = True
            else:
                self.begin(trial)

    def begin(self, trial: Trial) -> None:
        """Start one trial."""
        slot = min(set(range(self.jobs)) - {each.slot for each in self.running})
        gpus, number = self.plan.arguments.gpus, trial.number
        folder = self.plan.folder / trial.user_attrs.get("folder", f"trial-{number:04d}")
        if folder.exists():
            wait_for(folder)
            if not (folder / "checkpoints/latest.pt").exists():  # nothing to go on from
                folder = self.plan.folder / f"trial-{number:04d}"
        trial.set_user_attr("folder", folder.name)
        words = trials.words_of(self.plan.folder / BASE, folder, trial.params | self.beside)
        process = trials.start(words, folder, self.plan.arguments.metric, gpus[slot % len(gpus)] if gpus else None)
        self.running.append(Attempt(trial, process, slot))
        settings = ", ".join(f"{name} {shown(value)}" for name, value in trial.params.items())
        self.say(f"trial {number} {'goes on' if '--resume' in words else 'begins'}: {settings}")

    def look(self) -> None:
        """Take in what trials have logged, and see off those that have ended."""
        for attempt in list(self.running):
            ended = attempt.process.status is not None  # before reading, so that nothing comes after it
            self.take_in(attempt)
            if self.stop.raised:
                attempt.process.stop()
            if ended:
                self.running.remove(attempt)
                self.see_off(attempt)
                self.drained = False
        if len(self.failures) >= HOPELESS and not self.succeeded:
            raise UserError(f"the first {len(self.failures)} trials failed, the last one so: {self.failures[-1]}")

    def take_in(self, attempt: Attempt) -> None:
        """Report new evaluations; end the trial if they are bad."""
        if time.monotonic() - attempt.beat > BEAT:
            self.search.beat(attempt.trial)
            attempt.beat = time.monotonic()
        every = self.plan.base.run.eval_every
        for step, value in sorted(attempt.process.log.read().items()):
            number = step // every if every else 1
            if number <= attempt.reported:
                continue
            attempt.reported = number
            if self.search.report(attempt.trial, number, value) and number < self.plan.evaluations:
                attempt.pruned = True
                attempt.process.stop()
                return

    def see_off(self, attempt: Attempt) -> None:
        """Write down what came of a trial."""
        trial, process = attempt.trial, attempt.process
        arguments = self.plan.arguments
        value = trials.score(process.log.read(), arguments.score, arguments.minimize)
        if process.status != 0 and not self.stop.raised:
            return self.broken(attempt, process.failure())
        if attempt.pruned:
            self.search.prune(trial)
            self.succeeded += 1
            return self.say(f"trial {trial.number} ends early: {arguments.metric} {shown_score(value)}")
        if process.stopped or process.status != 0:
            self.search.postpone(trial)
            return self.say(f"trial {trial.number} was interrupted and is left for later")
        if value is None:
            return self.broken(attempt, f"it has logged no {arguments.metric}")
        self.search.complete(trial, value)
        self.succeeded += 1
        return self.say(f"trial {trial.number} ends: {arguments.metric} {shown_score(value)}")

    def broken(self, attempt: Attempt, reason: str) -> None:
        """Write down a failure."""
        self.search.fail(attempt.trial, reason)
        self.failures.append(reason)
        self.say(f"trial {attempt.trial.number} fails: {reason} ({trials.output_of(attempt.process.folder)})")

    def abandon(self) -> None:
        """Where the sweep itself breaks, its trials save and are left for later."""
        for attempt in self.running:
            attempt.process.stop()
        for attempt in self.running:
            attempt.process.child.wait()
            with contextlib.suppress(StorageInternalError):  # then the trial is taken for dead, later
                self.search.postpone(attempt.trial)


def wait_for(folder: Path) -> None:
    """Wait until no process uses the folder of a run, which one may whose worker has just died."""
    deadline = time.monotonic() + PATIENCE
    while in_use(folder) and time.monotonic() < deadline:
        time.sleep(POLL)
