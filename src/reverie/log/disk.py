"""Writing files of a run: a full or missing disk is the user's to mend, so it is told in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..config.errors import Unwritable
from ..config.whole import reason

RESUME = "make room, then --resume, or choose another --logdir"


@contextmanager
def writing(path: Path, mend: str = RESUME) -> Iterator[None]:
    """A block in which failing to write `path` becomes a UserError."""
    try:
        yield
    except OSError as error:
        raise Unwritable(f"cannot write {path}: {reason(error)}: {mend}") from error
