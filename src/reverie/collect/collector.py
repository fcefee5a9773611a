"""Collecting rows: an agent acts in a stream of rows, in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ..agents.base import Agent, Mode
from ..data.episode_writer import LEARNERS, EpisodeWriter
from ..data.episodes import EpisodeStore
from ..data.rows import Batch, Episode, Rows
from ..envs.rows import RowStream
from .transfer import Transfer


@dataclass(frozen=True)
class Chunk:
    """Rows (T + 1, N, ...) in order, the last of them without action; what ended on the way; the steps taken."""

    rows: Batch
    episodes: list[Episode]
    steps: int
    severed: tuple[int, ...] = ()
    """Environments whose first row begins an episode although the one before has not ended: rows between are lost."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What is known about how they were collected."""


class Source(Protocol):
    """Where the rows of a run come from."""

    def collect(self, steps: int) -> Chunk:
        """More rows of every environment: `steps` of them, or as many as come at a time."""

    def record(self, store: Callable[[], EpisodeStore]) -> None:
        """Write the episodes to come into a store, which those who act make for themselves; before the first rows."""

    def publish(self, updates: int) -> None:
        """Hand the agent, as it is after so many updates, to those who act with copies of it."""

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as tensors and plain values."""

    def restore(self, saved: dict[str, Any]) -> bool:
        """Go on where a source was when its state was taken; whether new episodes begin instead."""

    def close(self) -> None:
        """End the environments."""


class Collector:
    """Steps a stream with an agent. The buffer it fills is its own and is filled anew by the next `collect`."""

    def __init__(self, stream: RowStream, agent: Agent, device: torch.device, mode: Mode = "train") -> None:
        self.stream, self.agent, self.device, self.mode = stream, agent, device, mode
        self.carry = agent.initial_carry(stream.count)
        self.transfer = Transfer(device)
        self.buffer: Batch = {}
        self.rows: Rows = {}
        self.latest: Batch = {}
        """The newest row, as the buffer has it."""
        self.writer: EpisodeWriter | None = None

    def collect(self, steps: int) -> Chunk:
        """`steps` more rows of every environment, acted upon, and the row that follows them."""
        self.begin()
        episodes: list[Episode] = []
        taken = 0
        for t in range(steps):
            self.answer(t, steps + 1)
            ended, count = self.hear()
            episodes += ended
            taken += count
        self.end(steps)
        return Chunk(self.buffer, episodes, taken)

    def begin(self) -> None:
        """Let the first episodes begin, if none has."""
        self.rows = self.rows or self.stream.begin()

    def answer(self, t: int, length: int) -> None:
        """Act upon row t of a chunk of so many, and let the games go on."""
        # the row a chunk ends with begins the next one and is on the device already
        row = self._store(t, length, self.latest) if t == 0 and self.latest else self._take_in(t, length)
        added, self.carry = self.agent.act(row, self.carry, self.mode)
        self.stream.send(playable(added["action"], self.stream.action_space))
        self._store(t, length, added)

    def hear(self) -> tuple[list[Episode], int]:
        """Wait for the next row; the episodes that end with it, and how many steps were taken."""
        self.rows = self.stream.receive()
        return self.stream.finished, self.stream.count - int(self.rows["is_first"].sum())

    def end(self, t: int) -> None:
        """Take in row t, the last of a chunk."""
        self.latest = self._take_in(t, t + 1)
        if self.writer is not None:
            self.writer.add({key: rows[:-1] for key, rows in self.buffer.items()})

    def _take_in(self, t: int, length: int) -> Batch:
        """Copy the newest row into the buffer; its columns where the agent is."""
        return self._store(t, length, self.transfer(self.rows), self.rows)

    def _store(self, t: int, length: int, values: Batch, origin: Rows | None = None) -> Batch:
        """Copy one row's columns into the buffer; the columns where the agent is, as they stand there if that is it."""
        stored: Batch = {}
        for key, value in values.items():
            column = self.buffer.get(key)
            if column is None or column.shape[0] != length:
                column = torch.empty((length, *value.shape), dtype=value.dtype, device=self.device)
                self.buffer[key] = column
            place = column[t]
            if place.device == value.device:
                stored[key] = place.copy_(value)
            else:  # memory that a generator shares, while its agent is on a GPU
                place.copy_(value if origin is None else torch.from_numpy(origin[key]))
                stored[key] = value.to(place.dtype)
        return stored

    def record(self, store: Callable[[], EpisodeStore]) -> None:
        """Write the episodes to come into a store."""
        self.writer = EpisodeWriter(store(), (*LEARNERS, "feature"))

    def publish(self, updates: int) -> None:
        """Nothing: the agent that acts is the one that learns."""

    def state(self) -> dict[str, Any]:
        """What brings the stream back to this very row, as tensors and plain values."""
        if not self.rows:
            return {}
        written = {"writer": self.writer.state()} if self.writer is not None else {}
        return {"stream": self.stream.state(), "carry": self.carry, "first": self._at_first(), **written}

    def restore(self, saved: dict[str, Any]) -> bool:
        """Go on where `state` was taken; whether new episodes begin instead, as they do where it cannot be reached."""
        if "stream" not in saved:  # nothing was collected, or elsewhere
            return True
        self.rows, self.latest = self.stream.restore(_arrays(saved["stream"])), {}
        if self.writer is not None and "writer" in saved:
            self.writer.restore(saved["writer"])
        carry = saved["carry"]
        self.carry = {key: x.to(self.device) for key, x in carry.items()} if isinstance(carry, dict) else carry
        return self._at_first() and not saved.get("first", False)

    def _at_first(self) -> bool:
        """Whether every environment stands at the first row of an episode."""
        return bool(self.rows["is_first"].all())

    def close(self) -> None:
        """End the environments."""
        self.stream.close()


class Idle:
    """Collects nothing: rows come from elsewhere. Its steps are those that updates are due for."""

    def __init__(self, envs: int) -> None:
        self.envs = envs

    def collect(self, steps: int) -> Chunk:
        """As many steps as environments would make, and no rows."""
        return Chunk({}, [], steps * self.envs)

    def record(self, store: Callable[[], EpisodeStore]) -> None:
        """Nothing: there are no episodes."""

    def publish(self, updates: int) -> None:
        """Nothing: nobody acts."""

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, saved: dict[str, Any]) -> bool:
        """Go on; episodes that were acted before, if any, are cut."""
        return bool(saved)

    def close(self) -> None:
        """Nothing to end."""


def _arrays(value: Any) -> Any:
    """The same with tensors, which checkpoints hold, as the arrays that environments work with."""
    if isinstance(value, dict):
        return {key: _arrays(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_arrays(each) for each in value]
    return value.numpy() if isinstance(value, Tensor) else value


def playable(action: Tensor, space: spaces.Space) -> np.ndarray:
    """Actions as the environment takes them: arrays, cut at the borders of a Box."""
    array = action.cpu().numpy()
    return np.clip(array, space.low, space.high) if isinstance(space, spaces.Box) else array
