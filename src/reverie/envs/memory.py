"""Where the environments of a vector put what they show: arrays over one block of memory, which processes may share.

Observations, rewards and flags exist twice, so that rows received stay valid while the next ones are written.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from .slot import Step

ALIGN = 64
"""Arrays start at cache lines."""

FLAGS = ("terminated", "truncated", "life_lost", "broken")


@dataclass(frozen=True)
class Plan:
    """The names, shapes and dtypes of all arrays."""

    observation: spaces.Dict
    action: gymnasium.Space
    count: int
    workers: int = 1

    def fields(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and dtype of each array by name."""
        fields: dict[str, tuple[tuple[int, ...], Any]] = {}
        for side in "01":
            for key, space in self.observation.spaces.items():
                fields[f"{side}/observation/{key}"] = ((self.count, *(space.shape or ())), space.dtype)
            fields[f"{side}/reward"] = ((self.count,), np.float64)
            fields.update({f"{side}/{flag}": ((self.count,), np.bool_) for flag in FLAGS})
        fields["action"] = ((self.count, *(self.action.shape or ())), self.action.dtype)
        fields["episode"] = ((self.count,), np.int64)
        fields["busy"] = ((self.workers,), np.int64)
        return fields

    def size(self) -> int:
        """How many bytes all arrays take."""
        return sum(padded(shape, dtype) for shape, dtype in self.fields().values())


def padded(shape: tuple[int, ...], dtype: Any) -> int:
    """The bytes of one array, rounded up to whole cache lines."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return -(-size // ALIGN) * ALIGN


class Frame:
    """What all environments show at one step."""

    def __init__(self, observation: dict[str, np.ndarray], reward: np.ndarray, flags: list[np.ndarray]) -> None:
        self.observation = observation
        self.reward = reward
        self.terminated, self.truncated, self.life_lost, self.broken = flags

    def put(self, index: int, step: Step) -> None:
        """Write what one environment shows."""
        for key, value in step.observation.items():
            self.observation[key][index] = value
        self.reward[index] = step.reward
        self.terminated[index] = step.terminated
        self.truncated[index] = step.truncated
        self.life_lost[index] = step.life_lost
        self.broken[index] = step.broken

    def row(self, index: int) -> dict[str, np.ndarray]:
        """A copy of one environment's observation."""
        return {key: array[index].copy() for key, array in self.observation.items()}

    def outcome(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
        """Observations, rewards, terminations and truncations, as Gymnasium's `step` orders them."""
        return dict(self.observation), self.reward, self.terminated, self.truncated

    def infos(self, summaries: dict[int, dict[str, float]]) -> dict[str, Any]:
        """The rest as an info dict; summaries come by environment."""
        summary = [summaries.get(index, {}) for index in range(len(self.reward))]
        return {"life_lost": self.life_lost, "broken": self.broken, "summary": summary}


class Memory:
    """All arrays of a vector: two frames, the actions, the episodes' numbers, and who is busy with what."""

    def __init__(self, plan: Plan, block: Any = None) -> None:
        block = bytearray(plan.size()) if block is None else block
        arrays: dict[str, np.ndarray] = {}
        offset = 0
        for name, (shape, dtype) in plan.fields().items():
            count = int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(block, dtype, count, offset).reshape(shape)
            offset += padded(shape, dtype)
        self.frames = tuple(
            Frame(
                {key: arrays[f"{side}/observation/{key}"] for key in plan.observation.spaces},
                arrays[f"{side}/reward"],
                [arrays[f"{side}/{flag}"] for flag in FLAGS],
            )
            for side in "01"
        )
        self.action = arrays["action"]
        self.episode = arrays["episode"]
        self.busy = arrays["busy"]


class SharedBlock:
    """A block of memory without a name: processes that are given its file descriptor share it.

    Nothing is left behind, however the processes end; named shared memory would need a clean-up.
    """

    def __init__(self, size: int) -> None:
        self.file = anonymous_file()
        os.ftruncate(self.file, size)
        self.map = mmap.mmap(self.file, size)
        self.close = weakref.finalize(self, os.close, self.file)


def anonymous_file() -> int:
    """The descriptor of an empty file that lives in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("reverie")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
