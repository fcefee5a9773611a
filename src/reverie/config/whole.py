"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from .errors import first_line

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


def reason(error: BaseException) -> str:
    """What is wrong with a file, in one line: the system's words, also where a library has put its own before them."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        seen = seen.__cause__ or seen.__context__
    return first_line(error)
