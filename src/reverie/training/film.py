"""Filming an evaluation: few, small frames that show whole episodes, since drawing often costs more than playing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from ..log.video import downscale, rgb

FRAMES = 100
"""Frames of a clip when the length of episodes is known beforehand."""

MOST_FRAMES = 150
"""Frames at which a clip of a longer episode is thinned out to every other one."""

MAX_SIDE = 192
"""Pixels of the longer side."""

SECONDS = 5.0
"""Time spent on drawing in one evaluation: MuJoCo without a GPU draws ten pictures a second."""

Pictures = Callable[[int], list[np.ndarray | None]]
"""Draws the first so many environments."""


class Film:
    """Clips of the first episode of each of some environments, one frame in `stride` steps and the last."""

    def __init__(self, count: int, stride: int = 1, clock: Callable[[], float] = time.perf_counter) -> None:
        self.stride, self.clock = stride, clock
        self.frames: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(count)]
        self.running = np.ones(count, dtype=bool)
        self.steps = self.looks = 0
        self.spent = 0.0

    def look(self, last: np.ndarray, pictures: Pictures) -> None:
        """Film the environments as they stand, if it is time to; `last` says whose episode ends here."""
        count = len(self.frames)
        ending = self.running & last[:count]
        if self.running.any() and self.spent < SECONDS and (ending.any() or self.steps % self.stride == 0):
            start = self.clock()
            self._draw(pictures(int(np.flatnonzero(self.running)[-1]) + 1), ending)
            self.spent += self.clock() - start
            self.looks += 1
        self.steps += bool(self.running.any())
        self.running &= ~ending

    def _draw(self, drawn: list[np.ndarray | None], ending: np.ndarray) -> None:
        due = self.steps % self.stride == 0
        for clip, running, ends, picture in zip(self.frames, self.running, ending, drawn):
            if running and (due or ends) and picture is not None:
                clip.append((self.steps, downscale(rgb(picture[None]), MAX_SIDE)[0]))
        while max(map(len, self.frames)) > MOST_FRAMES:
            self.stride *= 2
            self.frames = [thinned(clip, self.stride) for clip in self.frames]

    @property
    def clips(self) -> list[np.ndarray]:
        """The frames (T, h, w, 3) of each environment that drew any."""
        return [np.stack([frame for _, frame in clip]) for clip in self.frames if clip]

    @property
    def next_stride(self) -> int:
        """The stride with which episodes as long as the longest of these would be shown whole and in time."""
        if not self.looks:
            return self.stride
        affordable = SECONDS * self.looks / max(self.spent, 1e-9)
        return math.ceil(self.steps / min(FRAMES, max(1.0, affordable)))


def thinned(clip: list[tuple[int, np.ndarray]], stride: int) -> list[tuple[int, np.ndarray]]:
    """The frames of every `stride` steps, and the newest one."""
    return [(step, frame) for step, frame in clip if step % stride == 0 or step == clip[-1][0]]
