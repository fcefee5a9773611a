"""Evaluations that another process adds to metrics.jsonl, passed on to W&B, whose runs take one writer at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...config.schema import LogConfig
from ..logger import Sink
from ..video import write_bytes
from .jsonl import parsed
from .wandb import WandbSink

PASSED_FILE = "wandb_passed.txt"
"""Holds how many bytes of metrics.jsonl have been looked through."""
MARK = "eval/mean_return"

Evaluations = list[tuple[int, dict[str, float]]]
"""Steps, and what was found there."""


class RelaySink:
    """What the run writes itself, and evaluations that have come since its last write."""

    def __init__(self, sink: Sink, folder: Path) -> None:
        self._sink, self._folder = sink, folder
        self._passed = (folder / "metrics.jsonl").stat().st_size
        note(folder, self._passed)

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Pass on what others have written, then this."""
        self._pass_on()
        self._sink.write(step, scalars, videos)

    def _pass_on(self) -> None:
        found, self._passed = evaluations(self._folder, self._passed)
        for step, scalars in found:
            self._sink.write(step, scalars, {})
        if found:
            note(self._folder, self._passed)

    def close(self) -> None:
        """Pass on the last ones; later ones are for `pass_on_rest`."""
        self._pass_on()
        self._sink.close()


def pass_on_rest(folder: Path, config: LogConfig) -> None:
    """Send evaluations that came after the run had ended: its W&B run is resumed for them."""
    passed = folder / PASSED_FILE
    found, end = evaluations(folder, int(passed.read_text())) if passed.exists() else ([], 0)
    if not found:
        return
    sink = WandbSink(folder, config, {})
    for step, scalars in found:
        sink.write(step, scalars, {})
    sink.close()
    note(folder, end)


def evaluations(folder: Path, start: int) -> tuple[Evaluations, int]:
    """The evaluations from a byte of metrics.jsonl on, and the byte where its last whole line ends."""
    with (folder / "metrics.jsonl").open("rb") as file:
        file.seek(start)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    lines = [line for line in map(parsed, whole.splitlines()) if line is not None and MARK in line]
    found = [(line.pop("step"), {name: value for name, value in line.items() if value is not None}) for line in lines]
    return found, start + len(whole)


def note(folder: Path, passed: int) -> None:
    """Write down how far metrics.jsonl has been looked through."""
    write_bytes(folder / PASSED_FILE, f"{passed}\n".encode())
