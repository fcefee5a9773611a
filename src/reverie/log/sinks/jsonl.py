"""metrics.jsonl: one object a line."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...config.whole import write_whole
from ..disk import writing

COUNTS = ("frames", "updates")
HEAD = (*COUNTS, "time")
"""Stand before the other scalars, after `step`."""


class JsonlSink:
    """Appends a line a write. A new run starts an empty file; a resumed one cuts what lies after its checkpoint."""

    def __init__(self, path: Path, resume_step: int | None = None) -> None:
        self._path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if resume_step is None:
                path.write_bytes(b"")
            elif path.exists():
                cut_after(path, resume_step)
            self._file: IO[str] | None = path.open("a", encoding="utf-8")  # an evaluator may append, too

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Append one line and hand it to the system."""
        if self._file is None:
            raise ValueError(f"{self._path} is closed")
        try:
            with writing(self._path):
                self._file.write(line(step, scalars) + "\n")
                self._file.flush()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            # Every line was flushed, so what fails here is the rest of a line that has failed already.
            with contextlib.suppress(OSError):
                file.close()


class GuestSink:
    """Appends to the file of a run that another process writes: whole lines, the file open no longer than it takes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Append one line."""
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(line(step, scalars) + "\n")

    def close(self) -> None:
        """Nothing stays open."""


def line(step: int, scalars: dict[str, float]) -> str:
    """One write as JSON; JSON has no word for NaN and infinity, so they are null."""
    ordered: dict[str, float | int | None] = {"step": step}
    for name in (*(name for name in HEAD if name in scalars), *scalars):
        value = float(scalars[name])
        ordered[name] = None if not math.isfinite(value) else int(value) if name in COUNTS else value
    return json.dumps(ordered, allow_nan=False)


def cut_after(path: Path, step: int) -> None:
    """Drop the lines of later steps, and a last line that a killed run left unfinished."""
    with path.open("rb") as source:
        write_whole(path, lambda target: target.writelines(_lines_until(source, step, path)))


def _lines_until(source: IO[bytes], step: int, path: Path) -> Iterator[bytes]:
    for number, text in enumerate(source, start=1):
        found = parsed(text)
        if found is None:
            if text.endswith(b"\n"):
                logging.getLogger("reverie").warning("dropped unreadable line %d of %s", number, path)
        elif found["step"] <= step:
            yield text.rstrip(b"\n") + b"\n"


def evaluated_steps(path: Path) -> set[int]:
    """The steps whose evaluation is in a file; none where there is no file."""
    return {found["step"] for found in lines_of(path) if "eval/mean_return" in found}


def last_step(path: Path) -> int:
    """The last step in a file; 0 where there is none."""
    return max((found["step"] for found in lines_of(path)), default=0)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """What stands in a file, without lines that are not ours."""
    found = map(parsed, path.read_bytes().splitlines()) if path.exists() else ()
    return [each for each in found if each is not None]


def parsed(text: bytes) -> dict[str, Any] | None:
    """The object on a line, or None where it is not one of ours."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("step"), int) else None
