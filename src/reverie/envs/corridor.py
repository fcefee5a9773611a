"""A reward that hardly any random policy ever sees, in a room at the end of a long corridor."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gymnasium.spaces import Discrete

from .toy import Outcome, Toy


class Corridor(Toy):
    """Doors one behind the other, each with three handles: one opens it, the other two lead back to the door before.

    Behind the last is a room that pays 1 for each step in it. The handles are the same in every episode but differ from
    door to door, so that no action always leads on. Of random policies one episode in 20,000 gets there
    (tests/envs/test_corridor.py). How far an episode came is reported as `episode/furthest`.
    """

    HANDLES: ClassVar[tuple[int, ...]] = (2, 0, 1, 1, 0, 2, 1, 2, 2, 0, 1, 0, 0, 2, 1)
    LIMIT: ClassVar[int] = 40
    observation_space = Discrete(len(HANDLES) + 1)
    action_space = Discrete(3)

    def begin(self) -> None:
        """Stand before the first door."""
        self.door = self.furthest = 0

    def observe(self) -> int:
        """The number of the door; the room is the last."""
        return self.door

    @property
    def arrived(self) -> bool:
        """Whether the room is reached."""
        return self.door == len(self.HANDLES)

    def step(self, action: int) -> Outcome:
        """On through the door, or back to the one before."""
        self.steps += 1
        if not self.arrived:
            opened = int(action) == self.HANDLES[self.door]
            self.door = self.door + 1 if opened else max(0, self.door - 1)
        self.furthest = max(self.furthest, self.door)
        info = {"success": self.arrived, "summary": {"furthest": float(self.furthest)}}
        return self.observe(), float(self.arrived), False, self.steps == self.LIMIT, info

    def render(self) -> np.ndarray:
        """The corridor from above, (16, 4 per door, 3): where one stands is bright, and the room is green."""
        cells = np.full((1, len(self.HANDLES) + 1, 3), 40, np.uint8)
        cells[0, -1] = (40, 160, 60)
        cells[0, self.door] = 255
        return cells.repeat(16, 0).repeat(4, 1)
