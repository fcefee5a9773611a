"""One trial of a sweep: an ordinary `reverie train` in a process and a folder of its own, watched by its log."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ..config.space import Value
from ..log.sinks.jsonl import parsed
from .parent import leaver
from .records import METRICS

STOPPED = "Stopped at step"
"""What `reverie train` prints when it was asked to stop."""


@dataclass
class Log:
    """The values of a metric in a run's log, read as it grows."""

    path: Path
    metric: str
    offset: int = 0
    identity: int = 0
    points: dict[int, float] = field(default_factory=dict)
    """Step -> value."""

    def read(self) -> dict[int, float]:
        """All values so far. A resumed run replaces the file, which is then read from its beginning."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return self.points
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self.identity or found.st_size < self.offset:
                self.identity, self.offset = found.st_ino, 0
                self.points.clear()
            file.seek(self.offset)
            for text in file:
                if not text.endswith(b"\n"):
                    break
                self.offset += len(text)
                line = parsed(text) or {}
                if (value := line.get(self.metric)) is not None:
                    self.points[line["step"]] = float(value)
        return self.points


@dataclass
class Process:
    """A training process and what it says."""

    folder: Path
    child: subprocess.Popen[bytes]
    log: Log
    begun: int
    """Where its part of the output begins; before it are those of earlier processes in the folder."""
    asked: bool = False
    """Whether it has been asked to leave."""

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self.child.poll()

    def stop(self) -> None:
        """Ask it to save and leave, once: it takes a second signal for an end when it has saved."""
        if self.status is None and not self.asked:
            self.asked = True
            self.child.terminate()

    def said(self) -> list[str]:
        """The last lines it printed."""
        text = output_of(self.folder).read_bytes()[self.begun :][-4000:].decode(errors="replace")
        return [line.strip() for line in text.splitlines() if line.strip()]

    @property
    def stopped(self) -> bool:
        """Whether it ended because it was asked to, with more to do."""
        return any(line.startswith(STOPPED) for line in self.said())

    def failure(self) -> str:
        """Why it failed, in a line."""
        lines, status = self.said(), self.status or 0
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        own = [line.removeprefix("reverie: ") for line in lines if line.startswith("reverie: ")]
        return (own or lines or [f"exit status {status}"])[-1]


def output_of(folder: Path) -> Path:
    """The file that takes what the run in a folder prints."""
    return folder.with_name(f"{folder.name}.log")


def words_of(base: Path, folder: Path, options: dict[str, Value]) -> list[str]:
    """The words of `reverie` that train a trial: on from its checkpoint if it has one."""
    if (folder / "checkpoints/latest.pt").exists():
        return ["train", "--resume", "--logdir", str(folder)]
    return new_words(base, folder, options)


def new_words(base: Path, folder: Path, options: dict[str, Value]) -> list[str]:
    """The words of `reverie` that train with these options from the beginning."""
    given = [word for name, value in options.items() for word in (f"--{name}", written(value))]
    return ["train", "--configs", str(base), *given, "--logdir", str(folder)]


def written(value: Value) -> str:
    """A value as the command line takes it."""
    return repr(value) if isinstance(value, float) else str(value)


def start(words: list[str], folder: Path, metric: str, gpu: str | None) -> Process:
    """Start training in a folder."""
    places = os.environ | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})
    with output_of(folder).open("ab") as output:
        begun = output.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "reverie", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=places,
            start_new_session=True,  # Ctrl-C is the sweep's to pass on
            preexec_fn=leaver(),
        )
    return Process(folder, child, Log(folder / METRICS, metric), begun)


def score(points: dict[int, float], kind: str, minimize: bool) -> float | None:
    """The score of a trial by its values: the last, the best, or their mean; None if there is none."""
    values = [value for _, value in sorted(points.items()) if math.isfinite(value)]
    if not values:
        return None
    if kind == "best":
        return min(values) if minimize else max(values)
    return sum(values) / len(values) if kind == "mean" else values[-1]
