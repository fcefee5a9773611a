"""Statistics of training episodes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ..data.rows import Episode

NO_EPISODE = math.nan


def episode_scalars(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over the episodes by metric name, broken episodes counted but left out of the means."""
    if not episodes:
        return {}
    whole = [episode for episode in episodes if not episode.broken]
    columns: dict[str, list[float]] = {}
    for episode in whole:
        for name, value in _figures(episode).items():
            columns.setdefault(f"episode/{name}", []).append(float(value))
    means = {name: fmean(values) for name, values in columns.items()}
    if "episode/success_rate" in means:  # an episode that does not tell of success had none
        means["episode/success_rate"] = sum(columns["episode/success_rate"]) / len(whole)
    return {**means, "episode/broken": float(len(episodes) - len(whole))}


def _figures(episode: Episode) -> dict[str, float]:
    figures: dict[str, float] = {"return": episode.score, "length": episode.length}
    for name, value in episode.summary.items():
        figures.setdefault("success_rate" if name == "success" else name, value)
    return figures


class EpisodeMeter:
    """Rolling statistics of the last training episodes; broken episodes are counted and otherwise ignored."""

    def __init__(self, window: int = 100) -> None:
        self.window = window
        self.count = 0
        """Whole episodes, ever."""
        self.broken = 0
        """Broken episodes, ever."""
        self._returns: deque[float] = deque(maxlen=window)
        self._lengths: deque[int] = deque(maxlen=window)

    def add(self, episodes: Iterable[Episode]) -> None:
        """Count finished episodes, in order."""
        for episode in episodes:
            if episode.broken:
                self.broken += 1
                continue
            self.count += 1
            self._returns.append(float(episode.score))
            self._lengths.append(int(episode.length))

    @property
    def full(self) -> bool:
        """Whether as many episodes have ended as the statistics look back on."""
        return len(self._returns) == self.window

    @property
    def mean(self) -> float:
        """Mean return of the recent episodes; NaN before the first has ended."""
        return fmean(self._returns) if self._returns else NO_EPISODE

    @property
    def best(self) -> float:
        """Best return of the recent episodes; NaN before the first has ended."""
        return max(self._returns, default=NO_EPISODE)

    @property
    def mean_length(self) -> float:
        """Mean length of the recent episodes; NaN before the first has ended."""
        return fmean(self._lengths) if self._lengths else NO_EPISODE

    def solved(self, threshold: float) -> bool:
        """Whether the mean return of a full window of episodes reaches the threshold."""
        return self.full and self.mean >= threshold

    def scalars(self) -> dict[str, float]:
        """The rolling figures by metric name; nothing before the first episode has ended."""
        if not self._returns:
            return {}
        return {"episode/recent_mean": self.mean, "episode/recent_best": self.best}

    def state_dict(self) -> dict[str, Any]:
        """Everything counted, as plain values."""
        return {
            "count": self.count,
            "broken": self.broken,
            "returns": list(self._returns),
            "lengths": list(self._lengths),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.count, self.broken = int(state["count"]), int(state["broken"])
        self._returns = deque(map(float, state["returns"]), maxlen=self.window)
        self._lengths = deque(map(int, state["lengths"]), maxlen=self.window)
