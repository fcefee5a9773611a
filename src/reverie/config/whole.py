"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from .errors import first_line

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
"""The system's errors of a disk or folder that takes nothing."""
PARTIAL = ".partial"
"""What the hidden name of a file that is being written ends in."""


def write_whole(path: Path, write: Callable[[IO[bytes]], object], alone: bool = True) -> None:
    """Write a file beside its place under a hidden name, and give it its own when it is on the disk.

    Other processes may write it at the same time if this one is said not to be alone.
    """
    writer = "" if alone else f".{os.getpid()}"
    beside = path.with_name(f".{path.name}{writer}{PARTIAL}")
    try:
        with open(beside, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if os.name != "nt":  # elsewhere the new name, too, is safe only when the folder is
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def of_system(error: BaseException) -> OSError | None:
    """The system's own error behind one, which a library may have put its own before; None where there is none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def reason(error: BaseException) -> str:
    """What is wrong with a file, in one line: the system's words, if it has any."""
    found = of_system(error)
    return str(found.strerror) if found else first_line(error)
