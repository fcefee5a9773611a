"""Crafter: an open world with 22 achievements; `crafter_reward`, and `crafter_noreward` for exploration without reward.

The benchmark's score is worked out over all training episodes where episodes are counted (log/episodes.py).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import gymnasium
import numpy as np

from ...config.errors import UserError
from ...config.schema import EnvConfig
from ..registry import Suite, extra

SIZE = 64
LENGTH = 10_000
"""Frames of the longest episode unless the user says otherwise."""
VIDEO_SIZE = 288
"""Side of rendered pictures: 9 cells of 32 pixels."""
SMALLEST_AREA = 9
"""Cells the player sees across."""


class Creatures(dict):
    """A set that keeps its order.

    Crafter keeps the creatures of a region in sets of objects and draws from them at random. Their order follows memory
    addresses, so that the same seed gave other worlds in another process.
    """

    def add(self, creature: Any) -> None:
        """Put a creature last."""
        self[creature] = None

    def remove(self, creature: Any) -> None:
        """Take a creature out."""
        del self[creature]


class CrafterEnv(gymnasium.Env):
    """Crafter's game behind Gymnasium's interface, the same for the same seed."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"

    def __init__(self, rewarded: bool, area: int, size: int, length: int) -> None:
        import crafter

        self._game = crafter.Env(area=(area, area), size=(size, size), reward=rewarded, length=length, seed=0)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self._game.action_names))

    def get_action_meanings(self) -> list[str]:
        """The actions in words."""
        return list(self._game.action_names)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """The first picture of a new world."""
        super().reset(seed=seed)
        # The game makes a world from its seed and the number of the episode: both are set, so that only ours counts.
        self._game._seed = int(self.np_random.integers(2**31 - 1))
        self._game._episode = 0
        image = self._game.reset()
        world = self._game._world
        order = {creature: place for place, creature in enumerate(world.objects)}
        chunks = {key: Creatures.fromkeys(sorted(chunk, key=order.__getitem__)) for key, chunk in world._chunks.items()}
        world._chunks = defaultdict(Creatures, chunks)
        return np.array(image, order="C"), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """What one action leads to; death is a real end, the last step of the day count is not."""
        image, reward, done, details = self._game.step(int(action))
        terminated = details["discount"] == 0
        info = {"summary": summary(details["achievements"])} if done else {}
        return np.array(image, order="C"), float(reward), terminated, bool(done) and not terminated, info

    def render(self) -> np.ndarray:
        """A larger picture of the same view."""
        random = self._game._world.random
        before = random.get_state()  # the noise of the night comes from the game's own generator
        try:
            return np.array(self._game.render((VIDEO_SIZE, VIDEO_SIZE)), order="C")
        finally:
            random.set_state(before)


def summary(achievements: dict[str, int]) -> dict[str, float]:
    """One figure per achievement: 1 if the episode unlocked it, else 0."""
    return {f"achievement/{name}": float(count > 0) for name, count in achievements.items()}


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """The world, with rewards or without."""
    if options.crafter.area < SMALLEST_AREA:
        raise UserError(f"--env.crafter.area {options.crafter.area} is too small: take at least {SMALLEST_AREA}")
    length = LENGTH if options.time_limit is None else options.time_limit * (options.repeat or 1)
    return CrafterEnv(name == "reward", options.crafter.area, options.size or SIZE, length)


def tasks() -> list[str]:
    """Both tasks."""
    return ["reward", "noreward"]


SUITE = Suite(
    name="crafter",
    about="an open world with 22 achievements",
    make=make,
    tasks=tasks,
    example="crafter_reward",
    needs=("crafter",),
    install=extra("crafter"),
    handles=frozenset({"size", "time_limit"}),
)
