"""A toy in which an image and a vector are both needed at every step, for world models that have minutes to learn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, MultiDiscrete

from .toy import Outcome, Toy, vector_space


class Pick(Toy):
    """A ball lies left or right in an image, a vector tells the hand to pick it with, and so ten times.

    The action is a side and a hand; each pays a half if it is right and costs a half if it is wrong. What a policy does
    not see it can only guess, so that the mean return is at most 5 without the image or without the vector, and 10 with
    both.
    """

    ROUNDS: ClassVar[int] = 10
    SIDE: ClassVar[int] = 16
    observation_space = Dict({"image": Box(0, 255, (SIDE, SIDE, 3), np.uint8), "vector": vector_space(2)})
    action_space = MultiDiscrete([2, 2])

    def begin(self) -> None:
        """Draw how high the balls lie in this episode, and the first of them."""
        self.right = 0
        self.row = int(self.np_random.integers(self.SIDE - 4))
        self.draw()

    def draw(self) -> None:
        """Draw on which side the ball lies, and the hand for it."""
        self.wanted = self.np_random.integers(2, size=2)

    def observe(self) -> dict[str, np.ndarray]:
        """The image, and the hand as 1 and -1."""
        return {"image": self.picture(), "vector": 2 * np.eye(2, dtype=np.float32)[self.wanted[1]] - 1}

    def step(self, action: np.ndarray) -> Outcome:
        """Pick, and be shown the next ball."""
        self.steps += 1
        right = int((np.asarray(action) == self.wanted).sum())
        self.right += right
        self.draw()
        ended = self.steps == self.ROUNDS
        return self.observe(), right - 1.0, ended, False, {"success": self.right == 2 * self.ROUNDS}

    def picture(self) -> np.ndarray:
        """The ball in its half."""
        image = np.zeros((self.SIDE, self.SIDE, 3), np.uint8)
        left = 2 + 8 * self.wanted[0]
        image[self.row : self.row + 4, left : left + 4] = (255, 80, 80)
        return image

    def render(self) -> np.ndarray:
        """The image, larger."""
        return self.picture().repeat(8, 0).repeat(8, 1)
