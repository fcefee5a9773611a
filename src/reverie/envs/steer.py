"""Toys that are steered by numbers, or by a number and a choice, for world models that have minutes to learn."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from .toy import Outcome, Toy, vector_space


class Steer(Toy):
    """A point in the plane is moved by two numbers, a quarter at most, and paid for being near the middle.

    Each direction pays a half at the middle and costs a half at the border. From where points begin, the mean return of
    ten steps is 0 for standing still, and 9.125 for going straight to the middle.
    """

    LENGTH: ClassVar[int] = 10
    STEP: ClassVar[float] = 0.25
    observation_space = vector_space(2)
    action_space: gymnasium.Space = Box(-1.0, 1.0, (2,), np.float32)

    def begin(self) -> None:
        """Draw the point."""
        self.point = self.np_random.uniform(-1.0, 1.0, 2)

    def observe(self) -> np.ndarray:
        """The point."""
        return self.point.astype(np.float32)

    def direction(self, action: Any) -> np.ndarray:
        """Where an action moves the point, -1 to 1 in both directions."""
        return np.clip(action, -1.0, 1.0)

    def step(self, action: Any) -> Outcome:
        """Move the point."""
        self.steps += 1
        self.point = np.clip(self.point + self.STEP * self.direction(action), -1.0, 1.0)
        near = 1.0 - 2.0 * float(np.abs(self.point).mean())
        return self.observe(), near, self.steps == self.LENGTH, False, {}


class MixedSteer(Steer):
    """The same by a choice (left, nothing, right) and a number (down and up): one of them alone has half of it."""

    action_space = Dict({"side": Discrete(3), "lift": Box(-1.0, 1.0, (1,), np.float32)})

    def direction(self, action: dict[str, Any]) -> np.ndarray:
        """The choice to the sides, the number up."""
        return np.array([int(action["side"]) - 1, np.clip(action["lift"], -1.0, 1.0)[0]])
