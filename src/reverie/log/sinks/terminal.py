"""The terminal: a live display for people, plain lines for files and pipes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO, Literal

import numpy as np
from rich.console import Console

from .live import LiveSink
from .phrases import duration, number, position, score

SHOWN = (
    ("episode/return", "return {}", score),
    ("eval/mean_return", "eval {}", score),
    ("time/sps", "{} sps", number),
    ("time/fps", "{} fps", number),
    ("time/ups", "{} ups", number),
    ("time/eta", "eta {}", duration),
)
"""Metric, how it is put, how its value is written; in the order of a line."""


class TerminalSink:
    """Whichever display suits the standard output, unless one is asked for."""

    def __init__(
        self,
        title: str = "",
        total: int = 0,
        display: Literal["auto", "live", "plain"] = "auto",
        opening: Sequence[str] = (),
    ) -> None:
        live = display == "live" or (display == "auto" and sys.stdout.isatty() and not Console().is_dumb_terminal)
        self._shown: LiveSink | PlainSink = LiveSink(title, total) if live else PlainSink(total)
        self._shown.announce(opening)

    def advise(self, step: int, lines: list[str]) -> None:
        """Show advice."""
        self._shown.advise(step, lines)

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Show the figures of a step."""
        self._shown.write(step, scalars, videos)

    def close(self) -> None:
        """Give the terminal back."""
        self._shown.close()


class PlainSink:
    """One line a write. A figure that is not new, such as the last evaluation's, is repeated."""

    def __init__(self, total: int = 0, file: IO[str] | None = None) -> None:
        self._total = total
        self._file: IO[str] | None = sys.stdout if file is None else file
        self._latest: dict[str, float] = {}
        self._advice: list[str] = []

    def announce(self, lines: Sequence[str]) -> None:
        """Print what is known before the first step."""
        for text in lines:
            self._put(text)

    def advise(self, step: int, lines: list[str]) -> None:
        """Put the advice at the end of the next line."""
        self._advice = lines

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Print one line."""
        self._latest |= scalars
        text = " | ".join([line(step, self._total, self._latest), *(f"! {each}" for each in self._advice)])
        self._advice = []
        self._put(text)

    def _put(self, text: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(text + "\n")
            self._file.flush()
        except BrokenPipeError:  # nobody reads any more (`| head`), which is no reason to stop training
            self._file = None

    def close(self) -> None:
        """Nothing stays open: the standard output is not ours."""


def line(step: int, total: int, scalars: dict[str, float]) -> str:
    """The figures of a run in one line."""
    place = f"step {position(step, total)}"
    if total:
        place += f" {min(100, 100 * step // total)}%"
    return " | ".join([place, *(put.format(words(scalars[name])) for name, put, words in SHOWN if name in scalars)])
