"""The folder of a run: never shared by two runs, never overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..config import store
from ..config.errors import Unwritable, UserError
from ..config.schema import Config
from ..data.counters import Counters
from ..envs import checks
from ..log.sinks.jsonl import last_step
from ..nn import ranks
from . import checkpoint
from .lock import LOCK

SHOWN = 10
"""How many differences of two configurations are told at most."""
BEGUN = (store.NAME, "metrics.jsonl", "events.*")
"""Files that a run has written when it is refused in its first steps."""


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
        if first and not (kept or resume or ranks.count() > 1 or isinstance(error, Unwritable)):
            with suppress(OSError):
                for each in [path for name in BEGUN for path in folder.glob(name)]:
                    each.unlink()
                (folder / checkpoint.FOLDER).rmdir()
        raise
