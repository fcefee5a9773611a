"""Statistics of training episodes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ..data.rows import Episode

NO_EPISODE = math.nan
ACHIEVEMENT = "achievement/"
"""What the names of those figures begin with that say whether an episode unlocked something."""


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


def crafter_score(success_rates: Iterable[float]) -> float:
    """The score of the Crafter benchmark in percent: the geometric mean of success rates, given as shares of 0 to 1."""
    logs = [math.log1p(100 * rate) for rate in success_rates]
    return math.expm1(fmean(logs))


class Achievements:
    """How many of all training episodes ever have unlocked each achievement that their summaries tell of."""

    def __init__(self) -> None:
        self.episodes = 0
        self.unlocked: dict[str, int] = {}

    def add(self, summary: Mapping[str, float]) -> None:
        """Count an episode, if it tells of achievements."""
        told = {name: int(value > 0) for name, value in summary.items() if name.startswith(ACHIEVEMENT)}
        self.episodes += bool(told)
        for name, value in told.items():
            self.unlocked[name] = self.unlocked.get(name, 0) + value

    def scalars(self) -> dict[str, float]:
        """The score by metric name; nothing before the first episode that tells of achievements."""
        if not self.episodes:
            return {}
        return {"episode/crafter_score": crafter_score(count / self.episodes for count in self.unlocked.values())}

    def state_dict(self) -> dict[str, Any]:
        """Everything counted, as plain values."""
        return {"episodes": self.episodes, "unlocked": dict(self.unlocked)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.episodes, self.unlocked = int(state["episodes"]), dict(state["unlocked"])


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
        self._achievements = Achievements()

    def add(self, episodes: Iterable[Episode]) -> None:
        """Count finished episodes, in order."""
        for episode in episodes:
            if episode.broken:
                self.broken += 1
                continue
            self.count += 1
            self._returns.append(float(episode.score))
            self._lengths.append(int(episode.length))
            self._achievements.add(episode.summary)

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
        recent = {"episode/recent_mean": self.mean, "episode/recent_best": self.best}
        return recent | self._achievements.scalars()

    def state_dict(self) -> dict[str, Any]:
        """Everything counted, as plain values."""
        return {
            "count": self.count,
            "broken": self.broken,
            "returns": list(self._returns),
            "lengths": list(self._lengths),
            "achievements": self._achievements.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.count, self.broken = int(state["count"]), int(state["broken"])
        self._returns = deque(map(float, state["returns"]), maxlen=self.window)
        self._lengths = deque(map(int, state["lengths"]), maxlen=self.window)
        self._achievements.load_state_dict(state["achievements"])
