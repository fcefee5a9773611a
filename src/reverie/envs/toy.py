"""Small environments of our own, for tests and demonstrations: deterministic by seed, fast, and easily understood."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

Outcome = tuple[Any, float, bool, bool, dict[str, Any]]


def vector_space(size: int) -> Box:
    """A space of float vectors between -1 and 1."""
    return Box(-1.0, 1.0, (size,), np.float32)


class Toy(gymnasium.Env):
    """What the toys share: a count of steps, and a picture."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observation of an episode."""
        super().reset(seed=seed)
        self.steps = 0
        self.begin()
        return self.observe(), {}

    def begin(self) -> None:
        """Draw what is random about an episode."""

    def observe(self) -> Any:
        """What the agent sees."""
        raise NotImplementedError

    def render(self) -> np.ndarray:
        """The numbers of a vector observation as gray stripes, (32, 32, 3)."""
        numbers = np.atleast_1d(self.observe())
        gray = np.clip(numbers * 127.5 + 127.5, 0, 255).astype(np.uint8)
        return np.tile(gray[np.arange(32) * len(gray) // 32, None], (32, 1, 3))


class Count(Toy):
    """Shows [step, label of the episode] and pays the number of the step; ten steps make an episode.

    The label is drawn from the seed, so that rows of different episodes can be told apart.
    """

    LENGTH: ClassVar[int] = 10
    observation_space = Box(0, 2**20, (2,), np.float32)
    action_space = Discrete(2)

    def begin(self) -> None:
        """Draw the label."""
        self.label = int(self.np_random.integers(2**20))

    def observe(self) -> np.ndarray:
        """The step and the label."""
        return np.array([self.steps, self.label], np.float32)

    def step(self, action: int) -> Outcome:
        """The next step, whatever the action."""
        self.steps += 1
        return self.observe(), float(self.steps), self.steps == self.LENGTH, False, {}


class Timeout(Toy):
    """Pays 1 for ever and always looks the same, but is cut every five steps: its value is 1 / (1 - gamma)."""

    LENGTH: ClassVar[int] = 5
    observation_space = vector_space(1)
    action_space = Discrete(2)

    def observe(self) -> np.ndarray:
        """Nothing of interest."""
        return np.ones(1, np.float32)

    def step(self, action: int) -> Outcome:
        """The next step, whatever the action."""
        self.steps += 1
        return self.observe(), 1.0, False, self.steps == self.LENGTH, {}


class Crash(Timeout):
    """Raises an error at random steps."""

    LENGTH: ClassVar[int] = 20

    def __init__(self, probability: float = 0.02, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.probability = probability

    def step(self, action: int) -> Outcome:
        """The next step, or an error."""
        if self.np_random.random() < self.probability:
            raise RuntimeError("this environment breaks on purpose")
        return super().step(action)


class Catch(Toy):
    """A ball falls on a 16 x 16 grid, drawn as an image; a paddle three cells wide has to be under it in the end."""

    GRID: ClassVar[int] = 16
    PIXELS: ClassVar[int] = 2
    COLOURS: ClassVar[tuple[tuple[int, int, int], ...]] = ((255, 80, 80),)
    observation_space: gymnasium.Space = Box(0, 255, (32, 32, 3), np.uint8)
    action_space = Discrete(3)

    def get_action_meanings(self) -> list[str]:
        """The actions in words."""
        return ["left", "noop", "right"]

    def begin(self) -> None:
        """Draw the column of the ball; the paddle starts anywhere from which it can still be reached."""
        self.balls = [int(self.np_random.integers(self.GRID))]
        self.target = self.balls[0]
        self.paddle = int(self.np_random.integers(1, self.GRID - 1))

    def observe(self) -> Any:
        """The image."""
        return self.picture()

    def step(self, action: int) -> Outcome:
        """Move the paddle left, not or right while the ball falls by one cell."""
        self.steps += 1
        self.paddle = int(np.clip(self.paddle + int(action) - 1, 1, self.GRID - 2))
        if self.steps < self.GRID - 1:
            return self.observe(), 0.0, False, False, {}
        caught = abs(self.paddle - self.target) <= 1
        return self.observe(), 1.0 if caught else -1.0, True, False, {"success": caught}

    def picture(self) -> np.ndarray:
        """The grid as an image (32, 32, 3)."""
        grid = np.zeros((self.GRID, self.GRID, 3), np.uint8)
        for column, colour in zip(self.balls, self.COLOURS):
            grid[self.steps, column] = colour
        grid[-1, self.paddle - 1 : self.paddle + 2] = 255
        return grid.repeat(self.PIXELS, 0).repeat(self.PIXELS, 1)

    def render(self) -> np.ndarray:
        """The image, larger."""
        return self.picture().repeat(4, 0).repeat(4, 1)


class SmallCatch(Catch):
    """The same on an 8 x 8 grid, for world models that have minutes to learn: there are 384 pictures in all."""

    GRID: ClassVar[int] = 8
    observation_space = Box(0, 255, (16, 16, 3), np.uint8)


class Hybrid(Catch):
    """Two balls fall, and a vector tells which of them counts: neither the image nor the vector is enough."""

    COLOURS: ClassVar[tuple[tuple[int, int, int], ...]] = ((255, 80, 80), (80, 255, 80))
    observation_space = Dict({"image": Catch.observation_space, "vector": vector_space(2)})

    def begin(self) -> None:
        """Draw two columns far enough from each other that the paddle cannot be under both."""
        first = int(self.np_random.integers(self.GRID))
        away = int(self.np_random.integers(4, self.GRID - 3))
        self.balls = [first, (first + away) % self.GRID]
        self.which = int(self.np_random.integers(2))
        self.target = self.balls[self.which]
        self.paddle = self.GRID // 2

    def observe(self) -> dict[str, np.ndarray]:
        """The image, and one or the other half of the vector set."""
        return {"image": self.picture(), "vector": np.eye(2, dtype=np.float32)[self.which]}


class Memory(Toy):
    """The first observation holds a cue; five steps later the action must agree with it."""

    DELAY: ClassVar[int] = 5
    observation_space = vector_space(3)
    action_space = Discrete(2)

    def begin(self) -> None:
        """Draw the cue."""
        self.cue = int(self.np_random.integers(2))

    def observe(self) -> np.ndarray:
        """The cue at the first step, how far the episode is, and whether the action counts now."""
        cue = (2 * self.cue - 1) if self.steps == 0 else 0
        return np.array([cue, min(1.0, self.steps / self.DELAY), self.steps == self.DELAY], np.float32)

    def step(self, action: int) -> Outcome:
        """The next step; the last one pays."""
        self.steps += 1
        if self.steps <= self.DELAY:
            return self.observe(), 0.0, False, False, {}
        right = int(action) == self.cue
        return self.observe(), 1.0 if right else -1.0, True, False, {"success": right}


class Recall(Toy):
    """A cue is shown, hidden for three rows, asked for in the last of them, and then shown again beside the next cue.

    The row that asks is always the same, so that without memory half of the answers are right, whatever the policy. The
    answer that follows tells a world model what it should have kept in mind, whatever was answered.
    """

    HIDDEN: ClassVar[int] = 3
    ROUNDS: ClassVar[int] = 10
    observation_space = vector_space(3)
    action_space = Discrete(2)

    def begin(self) -> None:
        """Draw the first cue."""
        self.cue, self.answer = self._draw(), 0
        self.right = 0

    def _draw(self) -> int:
        return 2 * int(self.np_random.integers(2)) - 1

    def observe(self) -> np.ndarray:
        """The new cue and the answer of the round before, both 0 while hidden, and whether the action counts now."""
        phase = self.steps % (self.HIDDEN + 1)
        shown = [self.cue, self.answer] if phase == 0 else [0, 0]
        return np.array([*shown, phase == self.HIDDEN], np.float32)

    def step(self, action: int) -> Outcome:
        """The next row; answers are paid with 1 or -1."""
        asked = self.steps % (self.HIDDEN + 1) == self.HIDDEN
        self.steps += 1
        if not asked:
            return self.observe(), 0.0, False, False, {}
        right = 2 * int(action) - 1 == self.cue
        self.right += right
        self.cue, self.answer = self._draw(), self.cue
        ended = self.steps == self.ROUNDS * (self.HIDDEN + 1)
        return self.observe(), 1.0 if right else -1.0, ended, False, {"success": self.right == self.ROUNDS}


class Reach(Toy):
    """A point in the plane is steered to a goal by two continuous numbers."""

    LIMIT: ClassVar[int] = 50
    observation_space = vector_space(4)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def begin(self) -> None:
        """Draw the point and the goal."""
        self.point, self.goal = self.np_random.uniform(-1.0, 1.0, (2, 2))

    def observe(self) -> np.ndarray:
        """The point and the goal."""
        return np.concatenate([self.point, self.goal]).astype(np.float32)

    def step(self, action: np.ndarray) -> Outcome:
        """Move the point by at most a tenth; being far costs, arriving pays."""
        self.steps += 1
        self.point = np.clip(self.point + 0.1 * np.clip(action, -1.0, 1.0), -1.0, 1.0)
        distance = float(np.linalg.norm(self.point - self.goal))
        arrived = distance < 0.1
        reward = 1.0 if arrived else -0.1 * distance
        return self.observe(), reward, arrived, self.steps == self.LIMIT and not arrived, {"success": arrived}


class Multi(Toy):
    """Two switches have to be set as the observation shows them; each right one pays a half."""

    LENGTH: ClassVar[int] = 10
    SIZES: ClassVar[tuple[int, ...]] = (3, 4)
    observation_space = vector_space(sum(SIZES))
    action_space = MultiDiscrete(list(SIZES))

    def begin(self) -> None:
        """Draw the first wish."""
        self.wish = self.np_random.integers(self.SIZES)

    def observe(self) -> np.ndarray:
        """The wanted positions, one-hot."""
        halves = [np.eye(size, dtype=np.float32)[wanted] for size, wanted in zip(self.SIZES, self.wish)]
        return np.concatenate(halves)

    def step(self, action: np.ndarray) -> Outcome:
        """Pay for the positions and wish others."""
        self.steps += 1
        reward = float(np.mean(np.asarray(action) == self.wish))
        self.begin()
        return self.observe(), reward, self.steps == self.LENGTH, False, {}
