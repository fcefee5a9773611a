"""Evaluation: whole episodes in parallel environments, each environment playing its share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
import torch

from ..agents.base import Agent, Mode
from ..collect.collector import playable
from ..data.rows import Episode, Rows
from ..envs.rows import RowStream
from .film import Film

LOG = logging.getLogger("reverie")


@dataclass(frozen=True)
class Evaluation:
    """The episodes of one evaluation, and the frames of some of them."""

    episodes: list[Episode]
    clips: list[np.ndarray]
    """Frames (T, h, w, 3) of the first episode of the first environments."""

    @property
    def clip_scores(self) -> list[float]:
        """The returns of the episodes that the clips show."""
        first = {episode.env: episode.score for episode in reversed(self.episodes)}
        return [first[env] for env in range(len(self.clips))]

    def summary(self) -> dict[str, float]:
        """Mean, median, least and greatest return, success rate where the task knows success, length, episodes."""
        scores = [episode.score for episode in self.episodes]
        figures = {
            "mean_return": fmean(scores),
            "median_return": median(scores),
            "min_return": min(scores),
            "max_return": max(scores),
            "mean_length": fmean(episode.length for episode in self.episodes),
            "episodes": float(len(scores)),
        }
        if any("success" in episode.summary for episode in self.episodes):  # silence is no success
            figures["success_rate"] = fmean(episode.summary.get("success", 0.0) for episode in self.episodes)
        return figures


LONGEST_EPISODE = 30_000
"""Steps after which an episode that does not end is counted as it stands; Atari's own limit is 27,000."""


class Evaluator:
    """Plays episodes with an agent. The same seeds every time, so that two evaluations differ by the agent alone."""

    def __init__(self, stream: RowStream, device: torch.device, episodes: int, clips: int = 0) -> None:
        self.stream, self.device, self.episodes, self.clips = stream, device, episodes, clips
        self.stride = 1
        """Steps between two frames of the next film, by what the last one took."""

    @torch.inference_mode()
    def evaluate(
        self, agent: Agent, mode: Mode = "eval", stop: Callable[[], bool] = lambda: False
    ) -> Evaluation | None:
        """As many episodes as asked for; each environment plays a fixed share, so that short ones are not favoured.

        None if `stop` says to leave off on the way.
        """
        drawn = agent.generator.get_state()  # an evaluation draws the same each time, and takes nothing from training
        agent.generator.manual_seed(0)
        try:
            return self._episodes(agent, mode, stop)
        finally:
            agent.generator.set_state(drawn)

    def _episodes(self, agent: Agent, mode: Mode, stop: Callable[[], bool]) -> Evaluation | None:
        quota = np.array([len(range(i, self.episodes, self.stream.count)) for i in range(self.stream.count)])
        rows, carry = self.stream.begin(), agent.initial_carry(self.stream.count)
        film = Film(min(self.clips, self.stream.count), self.stride)
        film.look(rows["is_last"], self.stream.pictures)
        done: list[Episode] = []
        cut = 0
        while quota.any():
            if stop():
                return None
            added, carry = agent.act(self._tensors(rows), carry, mode)
            rows = self.stream.step(playable(added["action"], self.stream.action_space))
            film.look(rows["is_last"], self.stream.pictures)
            for episode in self.stream.finished:
                if quota[episode.env] > 0 and not episode.broken:
                    quota[episode.env] -= 1
                    done.append(episode)
            for env in np.flatnonzero((self.stream.length >= LONGEST_EPISODE) & (quota > 0)):
                quota[env] = 0
                cut += 1
                done.append(Episode(int(env), float(self.stream.score[env]), int(self.stream.length[env])))
        if cut:
            LOG.warning(
                "%d of %d episodes of the evaluation did not end within %s steps and count as they stood: "
                "--env.time_limit ends them sooner", cut, len(done), f"{LONGEST_EPISODE:,}",
            )  # fmt: skip
        self.stride = film.next_stride
        return Evaluation(done, film.clips)

    def _tensors(self, rows: Rows) -> dict[str, torch.Tensor]:
        return {key: torch.from_numpy(value).to(self.device) for key, value in rows.items()}

    def close(self) -> None:
        """End the environments."""
        self.stream.close()
