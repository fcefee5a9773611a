"""The logger: gathers what a run reports and writes it to all sinks at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from ..agents.base import Family
from ..data.counters import Counters
from ..data.rows import Episode
from .advice import Adviser
from .episodes import EpisodeMeter, episode_scalars
from .means import Means
from .pace import Pace
from .video import Clip


class Sink(Protocol):
    """Where a log goes. Videos are uint8 (T, h, w, 3)."""

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Take everything there is at a step."""

    def close(self) -> None:
        """Finish; a second call does nothing."""


@runtime_checkable
class AdvisedSink(Protocol):
    """A sink that also shows advice; it hears of it just before the write that gave rise to it."""

    def advise(self, step: int, lines: list[str]) -> None:
        """Take lines of advice, at least one."""


class Logger:
    """Metrics, episodes and videos between two writes.

    Advice needs to know the number of discrete `actions` (0 for continuous ones) and the `family` of the agent.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        frames_per_step: int = 1,
        actions: int | None = None,
        family: Family = "other",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._sinks = list(sinks)
        self._frames_per_step = frames_per_step
        self._means = Means()
        self._pace = Pace(clock)
        self._adviser = Adviser(family, actions)
        self._episodes: list[Episode] = []
        self._videos: dict[str, np.ndarray] = {}
        self.meter = EpisodeMeter()

    @property
    def elapsed(self) -> float:
        """Seconds of training, earlier parts of a resumed run included."""
        return self._pace.elapsed

    def start(self, counters: Counters) -> None:
        """Begin to train from these counts; without it a resumed run's first write has no speeds."""
        self._pace.start(counters, self._frames(counters))

    def paused(self) -> AbstractContextManager[None]:
        """A context whose time is not training's: it counts in `elapsed` but not in speeds and the time left."""
        return self._pace.paused()

    def add(self, metrics: Mapping[str, Tensor | float]) -> None:
        """Count one value of each metric; a write gives their means. Tensors stay on their device until then."""
        self._means.add(metrics)

    def episodes(self, episodes: Sequence[Episode]) -> None:
        """Count finished training episodes."""
        self._episodes.extend(episodes)
        self.meter.add(episodes)

    def video(self, name: str, frames: np.ndarray, fps: int = 20) -> None:
        """Show a video at the next write."""
        self._videos[name] = Clip.of(frames, fps)

    def write(self, counters: Counters) -> dict[str, float]:
        """Write everything since the last time to all sinks; gives back the scalars."""
        scalars = self._scalars(counters)
        videos = self._videos
        self._episodes, self._videos = [], {}
        lines = self._adviser.lines(scalars)
        with self._pace.paused() if videos else nullcontext():  # encoding them belongs to the evaluation
            for sink in self._sinks:
                if lines and isinstance(sink, AdvisedSink):
                    sink.advise(counters.step, lines)
                sink.write(counters.step, scalars, videos)
        return scalars

    def _scalars(self, counters: Counters) -> dict[str, float]:
        frames = self._frames(counters)
        return {
            "frames": float(frames),
            "updates": float(counters.updates),
            "time": self.elapsed,
            **self._pace.measure(counters, frames),
            **episode_scalars(self._episodes),
            **self.meter.scalars(),
            **self._means.take(),
        }

    def _frames(self, counters: Counters) -> int:
        return counters.frames or counters.step * self._frames_per_step

    def close(self) -> None:
        """Close all sinks, even if one of them fails; the first failure is raised."""
        sinks, self._sinks = self._sinks, []
        failures: list[Exception] = []
        for sink in sinks:
            try:
                sink.close()
            except Exception as error:  # the other sinks still have data to save
                failures.append(error)
        if failures:
            raise failures[0]

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run goes on from, as plain values."""
        return {
            "elapsed": self.elapsed,
            "episodes": self.meter.state_dict(),
            "unwritten": {"means": self._means.state_dict(), "episodes": [asdict(each) for each in self._episodes]},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._pace.resume(float(state["elapsed"]))
        self.meter.load_state_dict(state["episodes"])
        self._means.load_state_dict(state["unwritten"]["means"])
        self._episodes = [Episode(**each) for each in state["unwritten"]["episodes"]]
