"""Several actions taken together: the layout of the vector that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Joint(spaces.Box):
    """Actions of the standard form side by side in one float32 vector: classes as numbers, other values as they are.

    `parts` are the single actions by name, in the order of the vector; `slices` says where each of them stands. For
    those who know nothing of parts it is a Box; classes between two whole numbers are rounded where they are played.
    """

    def __init__(self, parts: Mapping[str, gymnasium.Space]) -> None:
        self.parts = spaces.Dict(dict(parts))
        self.slices: dict[str, slice] = {}
        low, high = [], []
        width = 0
        for key, part in self.parts.items():
            least, most = bounds(part)
            low.append(least)
            high.append(most)
            self.slices[key] = slice(width, width + len(least))
            width += len(least)
        least, most = (np.concatenate(each).astype(np.float32) for each in (low, high))
        super().__init__(least, most, dtype=np.float32)

    def seed(self, seed: int | None = None) -> Any:
        """Seed the parts."""
        return self.parts.seed(seed)

    def sample(self, mask: None = None, probability: None = None) -> np.ndarray:
        """A random vector, each part drawn as its own space draws."""
        drawn = self.parts.sample()
        return np.concatenate([np.reshape(drawn[key], -1) for key in self.slices]).astype(np.float32)

    def __eq__(self, other: object) -> bool:
        """Whether the other has the same parts."""
        return isinstance(other, Joint) and self.parts == other.parts

    def __repr__(self) -> str:
        """The parts by name."""
        return f"Joint({', '.join(f'{key}: {part}' for key, part in self.parts.items())})"


def bounds(space: gymnasium.Space) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest numbers, both allowed, of an action of the standard form as a vector."""
    if isinstance(space, spaces.Discrete):
        return np.zeros(1), np.array([space.n - 1])
    if isinstance(space, spaces.MultiDiscrete):
        return np.zeros(len(space.nvec)), space.nvec - 1
    assert isinstance(space, spaces.Box), space
    return space.low, space.high


def parts_of(space: gymnasium.Space) -> list[gymnasium.Space]:
    """The single actions that an action of the standard form consists of."""
    return list(space.parts.spaces.values()) if isinstance(space, Joint) else [space]
