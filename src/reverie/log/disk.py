"""Writing files of a run: a full or missing disk is the user's to mend, so it is told in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..config.errors import UserError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block in which failing to write `path` becomes a UserError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot write {path}: {reason}: make room or choose another --logdir, then --resume"
        ) from error
