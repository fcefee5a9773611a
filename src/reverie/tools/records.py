"""Runs as they lie in folders: their options and what they have logged, whatever state they are in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..config import store
from ..config.errors import UserError
from ..config.options import flattened
from ..config.presets import dotted, read_yaml
from ..config.schema import Config
from ..log.sinks.jsonl import parsed

METRICS = "metrics.jsonl"
COUNTS = ("step", "frames", "updates", "time")
"""Stand on each line of a log and are no metrics."""


@dataclass(frozen=True)
class Record:
    """One run: its folder, every option by dotted name, and the lines of its log in order."""

    folder: Path
    options: dict[str, Any]
    lines: list[dict[str, Any]]

    @cached_property
    def metrics(self) -> set[str]:
        """Names of metrics that have at least one value."""
        return {name for line in self.lines for name, value in line.items() if value is not None} - set(COUNTS)


def records(folders: Iterable[str | Path]) -> list[Record]:
    """The runs in these folders and below them, each once, in order."""
    found: dict[Path, Record] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise UserError(f"no folder {folder}: give folders of runs, or a folder with runs in it")
        places = run_folders(folder)
        if not places:
            raise UserError(f"{folder} holds no run ({store.NAME} is missing): give folders of runs")
        for place in places:
            found.setdefault(place.resolve(), Record(place, options_of(place), lines_of(place)))
    return list(found.values())


def run_folders(folder: Path) -> list[Path]:
    """The folder itself if it is that of a run, else those of runs somewhere below it, sorted."""
    if (folder / store.NAME).is_file():
        return [folder]
    below = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    return [place for each in below for place in run_folders(each)]


def options_of(folder: Path) -> dict[str, Any]:
    """The options of a run by dotted name; of other versions too, so what it does not tell is as it is now."""
    told = dotted(read_yaml(folder / store.NAME))
    return flattened(Config()) | {name: tuple(each) if isinstance(each, list) else each for name, each in told.items()}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log; none where it has not begun, and without a last one that is not whole."""
    path = folder / METRICS
    if not path.is_file():
        return []
    with path.open("rb") as file:
        return [found for text in file if (found := parsed(text)) is not None]
