"""The folder of a run: never shared by two runs, never overwritten."""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from ..config import store
from ..config.errors import UserError
from ..config.schema import Config
from ..data.counters import Counters
from ..envs import checks
from ..log.sinks.jsonl import last_step
from ..nn import ranks
from . import checkpoint

LOCK = "run.lock"
LOOK, LOOKS = 0.001, 5000
"""Seconds between two tries for a lock that others share to look at it, and how many there are."""
SHOWN = 10
"""How many differences of two configurations are told at most."""
BEGUN = (store.NAME, "metrics.jsonl", "events.*")
"""Files that a run has written when it is refused in its first steps."""


def with_logdir(config: Config) -> Config:
    """The configuration with a new folder of its own where none was given."""
    if config.logdir:
        return config
    task = config.task.replace("/", "-").replace(":", "-")
    name = f"logdir/{task}-{config.agent.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
    return replace(config, logdir=next(each for each in names if not Path(each).exists()))


def check(config: Config, resume: bool) -> None:
    """Refuse a folder that is not fit for the run; nothing is written."""
    folder = Path(config.logdir)
    if (resume or (folder / store.NAME).is_file()) and (changes := store.differences(store.load(folder), config)):
        told = "; ".join(changes[:SHOWN]) + (f"; {len(changes) - SHOWN} more" if len(changes) > SHOWN else "")
        raise UserError(f"{folder} is a run of another configuration ({told}): use another --logdir")
    if resume:
        if not ranks.number():  # a kill may have left another process without its first checkpoint: it follows this one
            check_checkpoint(folder)
    elif (folder / store.NAME).is_file():
        check_checkpoint(folder)
        raise UserError(f"{folder} already holds a run: add --resume to continue it, or use another --logdir")
    elif folder.exists() and (not folder.is_dir() or any(each.name != LOCK for each in folder.iterdir())):
        raise UserError(f"{folder} holds other files: use an empty or new folder as --logdir")


def check_checkpoint(folder: Path) -> None:
    """Refuse to start over in a folder whose log tells of training, but whose checkpoint is gone."""
    latest = folder / checkpoint.FOLDER / "latest.pt"
    if not latest.exists() and (step := last_step(folder / "metrics.jsonl")):
        raise UserError(f"{folder} has a log up to step {step:,}, but no {latest.name}: {checkpoint.way_on(latest)}")


def prepare(config: Config, resume: bool) -> Path:
    """The folder of the run, made or found fit for it, with the configuration in it."""
    check(config, resume)
    folder = Path(config.logdir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not resume or store.load(folder) != config:
            store.save(config, folder)
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror}") from error
    return folder


@contextmanager
def withdrawn(config: Config, resume: bool) -> Iterator[list[Counters]]:
    """A block in which a new run that is refused in its first steps takes back what it wrote: the next may begin there.

    It is given a list for the counters of the run. What others have put into the folder stays, and so does a run that
    could not write: it may go on when there is room.
    """
    counters: list[Counters] = []
    try:
        yield counters
    except UserError as error:
        folder = Path(config.logdir)
        first = all(each.step <= checks.STEPS * config.envs.count for each in counters)
        kept = any((folder / checkpoint.FOLDER).glob("*")) or any(folder.glob("nonfinite-*"))
        if first and not (kept or resume or ranks.count() > 1 or isinstance(error.__cause__, OSError)):
            with suppress(OSError):
                for each in [path for name in BEGUN for path in folder.glob(name)]:
                    each.unlink()
                (folder / checkpoint.FOLDER).rmdir()
        raise


def in_use(folder: Path) -> bool:
    """Whether a run is at work in a folder."""
    try:
        with open(folder / LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _taken(file: TextIO) -> bool:
    """Whether a file is locked for us now. Those who only look share it for a moment: they are waited for."""
    for _ in range(LOOKS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # refused where a run has it
        except BlockingIOError:
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(LOOK)
    return False


class Lock:
    """Held while a run uses its folder; the system lets go of it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        self.file: TextIO | None = None

    def __enter__(self) -> Lock:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = open(self.path, "a+")
        except OSError as error:
            raise UserError(f"cannot write into {self.path.parent}: {error.strerror}") from error
        if not _taken(self.file):
            self.file.seek(0)
            owner = self.file.read().strip() or "another process"
            self.file.close()
            raise UserError(f"{self.path.parent} is in use by process {owner}: stop it or use another --logdir")
        self.file.truncate(0)
        self.file.write(str(os.getpid()))
        self.file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        if self.file:
            self.file.truncate(0)
            self.file.close()
