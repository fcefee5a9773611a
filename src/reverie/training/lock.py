"""Who works in the folder of a run. Nothing here waits for torch: programs that only start runs look, too."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import TextIO

from ..config.errors import UserError

LOCK = "run.lock"
LOOK, LOOKS = 0.001, 5000
"""Seconds between two tries for a lock that others share to look at it, and how many there are."""


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
