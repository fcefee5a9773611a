"""How fast a run is, how long it has taken and how long it will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..data.counters import Counters


class Mark(NamedTuple):
    """The counts at one moment of the time without pauses."""

    at: float
    step: int
    frames: int
    updates: int


class Pace:
    """Speeds between two measurements; the time left goes by the mean speed of the last `window` of them.

    It does not go by steps before the first update once there is one: those that learn take longer. Both leave out what
    happens under `paused`; the seconds elapsed do not.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, window: int = 20) -> None:
        self._clock = clock
        self._since = clock()
        self._before = 0.0
        self._paused = 0.0
        self._marks: deque[Mark] = deque([Mark(self._since, 0, 0, 0)], maxlen=window + 1)

    @property
    def elapsed(self) -> float:
        """Seconds of training, earlier parts of a resumed run included."""
        return self._before + self._clock() - self._since

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time that does not slow down the speeds: evaluation is not training. Pauses do not nest."""
        start = self._clock()
        try:
            yield
        finally:
            self._paused += self._clock() - start

    def _trained(self) -> float:
        return self._clock() - self._paused

    def resume(self, elapsed: float) -> None:
        """Go on after `elapsed` seconds of earlier training; speeds wait for the next measurement to start from."""
        self._before, self._since = elapsed, self._clock()
        self._marks.clear()

    def start(self, counters: Counters, frames: int) -> None:
        """Go on from these counts: speeds are measured and seconds counted from here."""
        self.resume(counters.elapsed)
        self._marks.append(Mark(self._trained(), counters.step, frames, counters.updates))

    def measure(self, counters: Counters, frames: int) -> dict[str, float]:
        """Speeds since the last measurement, progress and seconds left; what cannot be known yet is left out."""
        now = Mark(self._trained(), counters.step, frames, counters.updates)
        found: dict[str, float] = {}
        last = self._marks[-1] if self._marks else now
        seconds = now.at - last.at
        if seconds > 0 and now.step > last.step:
            found["time/sps"] = (now.step - last.step) / seconds
            found["time/fps"] = (now.frames - last.frames) / seconds
            found["time/ups"] = (now.updates - last.updates) / seconds
            self._marks.append(now)
            while now.updates and self._marks[1].updates == 0:
                self._marks.popleft()
        elif not self._marks:
            self._marks.append(now)
        if counters.total:
            found["time/progress"] = counters.progress
            found |= self._time_left(now, counters)
        return found

    def _time_left(self, now: Mark, counters: Counters) -> dict[str, float]:
        left = max(0, counters.total - counters.step)
        done = self._marks[-1].step - self._marks[0].step
        if left and not done:
            return {}
        return {"time/eta": left * (now.at - self._marks[0].at) / done if left else 0.0}
