"""The live display: a panel at the bottom of the terminal that is redrawn in place."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .phrases import duration, metric, number, position, score

WIDEST = 100
ADVICE_SHOWN = 3
ADVICE_WRITES = 50
"""Writes after which a piece of advice leaves the display."""

TRAIN = (
    ("train/actor_loss", "actor"),
    ("train/critic_loss", "critic"),
    ("train/policy_loss", "policy"),
    ("train/value_loss", "value"),
    ("train/entropy", "entropy"),
    ("train/approx_kl", "kl"),
    ("train/clip_fraction", "clipped"),
    ("train/explained_variance", "explained"),
    ("train/imagined_return", "imagined return"),
    ("world/kl", "world kl"),
)


@dataclass(frozen=True)
class View:
    """What the display shows; replaced as a whole, since another thread draws it."""

    step: int = 0
    scalars: dict[str, float] = field(default_factory=dict)
    advice: tuple[tuple[int, str], ...] = ()
    """(number of the write it came with, text)."""
    writes: int = 0
    at: float = field(default_factory=time.monotonic)


class LiveSink:
    """Redraws twice a second, so that clocks run between writes. Warnings of `reverie` appear above the panel."""

    def __init__(self, title: str = "", total: int = 0, console: Console | None = None) -> None:
        self._total = total
        self._title = title
        self._view = View()
        self._console = console or Console()
        self._open = True
        self._live = Live(console=self._console, get_renderable=self._panel, refresh_per_second=2)
        self._warnings = WarningsAbove(self._console)
        self._live.start()
        self._console.show_cursor(True)  # so that even a killed process leaves a usable terminal
        self._warnings.start()
        atexit.register(self.close)

    def announce(self, lines: Iterable[str]) -> None:
        """Print what is known before the first step, above the panel."""
        for text in lines:
            self._console.print(Text(text))

    def advise(self, step: int, lines: list[str]) -> None:
        """Show the advice for a while."""
        fresh = tuple((self._view.writes, text) for text in lines)
        self._view = replace(self._view, advice=(*self._view.advice, *fresh)[-ADVICE_SHOWN:])

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Show new figures; those not given anew, such as the last evaluation's, stay."""
        old = self._view
        kept = tuple(each for each in old.advice if old.writes - each[0] < ADVICE_WRITES)
        self._view = View(step, {**old.scalars, **scalars}, kept, old.writes + 1)

    def close(self) -> None:
        """Leave the last figures on the screen and give the terminal back."""
        if not self._open:
            return
        self._open = False
        atexit.unregister(self.close)
        self._warnings.stop()
        self._live.stop()

    def _panel(self) -> RenderableType:
        since = time.monotonic() - self._view.at if self._open else 0.0
        title = Text(self._title, style="bold") if self._title else None
        width = min(self._console.width, WIDEST)
        return Panel(panel_body(self._view, self._total, since), title=title, title_align="left", width=width)


def panel_body(view: View, total: int, since: float) -> Group:
    """The lines of the panel; `since` is the age of its figures in seconds."""
    lines: list[RenderableType] = [progress_line(view, total), speed_line(view.scalars, since)]
    lines += [text for text in (score_line(view.scalars), train_line(view.scalars)) if text.plain]
    lines += [Text(f"! {text}", style="yellow") for _, text in view.advice]
    return Group(*lines)


def progress_line(view: View, total: int) -> RenderableType:
    """A bar, the percentage and the step."""
    step = Text(f"step {position(view.step, total)}")
    if not total:
        return step
    percent = Text(f"{min(100, 100 * view.step // total)}%", style="bold")
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(ratio=1)
    row.add_column(justify="right", no_wrap=True)
    row.add_column(justify="right", no_wrap=True)
    row.add_row(ProgressBar(total=total, completed=view.step), percent, step)
    return row


def speed_line(scalars: dict[str, float], since: float) -> Text:
    """Steps, frames and updates a second, the time spent and the time left."""
    parts = [
        (number(scalars[name]), unit)
        for name, unit in (("time/sps", "SPS"), ("time/fps", "FPS"), ("time/ups", "UPS"))
        if name in scalars
    ]
    parts.append((duration(scalars.get("time", 0.0) + since), "elapsed"))
    if "time/eta" in scalars:
        parts.append((duration(max(0.0, scalars["time/eta"] - since)), "left"))
    return joined((value, f" {unit}") for value, unit in parts)


def score_line(scalars: dict[str, float]) -> Text:
    """Returns of recent training episodes and of the last evaluation."""
    parts: list[tuple[str, str]] = []
    if "episode/recent_mean" in scalars:
        best = score(scalars.get("episode/recent_best", np.nan))
        parts.append((score(scalars["episode/recent_mean"]), f" mean return (best {best})"))
    if "episode/success_rate" in scalars:
        parts.append((f"{scalars['episode/success_rate']:.0%}", " success"))
    if "eval/mean_return" in scalars:
        parts.append((score(scalars["eval/mean_return"]), " last evaluation"))
    return joined(parts)


def train_line(scalars: dict[str, float]) -> Text:
    """The few training metrics worth a glance."""
    text = Text(style="dim")
    for name, label in TRAIN:
        if name in scalars:
            text.append(f"{'  ' if text.plain else ''}{label} {metric(scalars[name])}")
    return text


def joined(parts: Iterable[tuple[str, str]]) -> Text:
    """Values in bold, each followed by its words."""
    text = Text()
    for value, words in parts:
        text.append("  " if text.plain else "")
        text.append(value, style="bold cyan")
        text.append(words)
    return text


class WarningsAbove(logging.Handler):
    """Prints what `reverie` logs above the live display, in place of handlers that would write across it."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._logger = logging.getLogger("reverie")
        self._replaced: list[logging.Handler] = []
        self._propagate = True

    def start(self) -> None:
        """Take over from the handlers that write to a terminal."""
        self._replaced = [each for each in self._logger.handlers if on_terminal(each)]
        for each in self._replaced:
            self._logger.removeHandler(each)
        self._propagate = self._logger.propagate
        if any(map(on_terminal, logging.getLogger().handlers)):
            self._logger.propagate = False
        self._logger.addHandler(self)

    def stop(self) -> None:
        """Give way to the handlers that were there."""
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagate
        for each in self._replaced:
            self._logger.addHandler(each)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        style = "red" if record.levelno >= logging.ERROR else "yellow"
        self._console.print(Text(f"{record.levelname.lower()}: {self.format(record)}", style=style))


def on_terminal(handler: logging.Handler) -> bool:
    """Whether a handler writes to a terminal."""
    return isinstance(handler, logging.StreamHandler) and handler.stream.isatty()
