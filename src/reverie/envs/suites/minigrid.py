"""MiniGrid and BabyAI: `minigrid_Empty-5x5-v0`, `minigrid_BabyAI-GoToObj-v0`.

What the agent sees, by `--env.minigrid.view`:

- `symbolic`: `grid`, the 7 by 7 cells before the agent as one float vector of ones and zeros. Each cell is its kind of
  object, its colour and its state, one-hot. MiniGrid gives codes in an array that looks like a picture of 7 by 7
  pixels; the codes are names and not brightness, so a network for pictures would read them wrongly.
- `rgb`: `image`, a picture of the same cells. `full_rgb`: `image`, a picture of the whole grid.

In all of them `direction` says where the agent looks and `mission` counts the words of its task, over the words that
occur in MiniGrid's missions and one more place for all others. The order of words is lost.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from ...config.schema import EnvConfig
from ..images import AreaResize
from ..registry import Suite, extra

SIZE = 64
TILE_PIXELS = 8
"""Side of a cell in pictures, before they are resized."""
KINDS = (11, 6, 3)
"""How many kinds of objects, colours and states there are."""

VOCABULARY = """
a after and at avoid ball behind blue box door end fetch find from front get go goal green grey hallway in key lava left
matching must near next object of on open opening pick purple put reach red right room rooms square the then to traverse
unlock up use yellow you your
"""
WORDS = tuple(VOCABULARY.split())
"""The words of all missions in MiniGrid 3 and BabyAI."""
WORD_INDEX = {word: index for index, word in enumerate(WORDS)}
MOST_WORDS = 100


class MinigridEnv(gymnasium.Wrapper):
    """A grid world whose observations are vectors, or vectors and a picture."""

    def __init__(self, env: gymnasium.Env, view: str, size: int) -> None:
        super().__init__(env)
        self._view = view
        spaces = gymnasium.spaces
        entries: dict[str, gymnasium.Space] = {
            "direction": spaces.Discrete(4),
            "mission": spaces.Box(0, MOST_WORDS, (len(WORDS) + 1,), np.float32),
        }
        if view == "symbolic":
            cells = env.unwrapped.agent_view_size**2  # type: ignore[attr-defined]
            entries["grid"] = spaces.Box(0, 1, (cells * sum(KINDS),), np.float32)
        else:
            entries["image"] = spaces.Box(0, 255, (size, size, 3), np.uint8)
            self._resize = AreaResize(*self._picture_shape(), size)
        self.observation_space = spaces.Dict(entries)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict]:
        """The first view of a new grid."""
        with contextlib.redirect_stdout(io.StringIO()):  # BabyAI prints every grid it discards
            observation, _ = self.env.reset(seed=seed, options=options)
        self._mission = word_counts(observation["mission"])
        return self._observation(observation), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """What an action leads to; an episode that ends with a reward is a success."""
        observation, reward, terminated, truncated, _ = self.env.step(int(action))
        done = terminated or truncated
        info = {"summary": {"success": float(float(reward) > 0)}} if done else {}
        return self._observation(observation), float(reward), bool(terminated), bool(truncated), info

    def _observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        found = {"direction": np.int64(observation["direction"]), "mission": self._mission.copy()}
        if self._view == "symbolic":
            found["grid"] = one_hot(observation["image"])
        else:
            found["image"] = self._resize(self._picture())
        return found

    def _picture(self) -> np.ndarray:
        world: Any = self.env.unwrapped
        return world.get_frame(highlight=world.highlight, tile_size=TILE_PIXELS, agent_pov=self._view == "rgb")

    def _picture_shape(self) -> tuple[int, int]:
        world: Any = self.env.unwrapped
        side = world.agent_view_size
        height, width = (side, side) if self._view == "rgb" else (world.height, world.width)
        return height * TILE_PIXELS, width * TILE_PIXELS


def one_hot(codes: np.ndarray) -> np.ndarray:
    """Cells (w, h, 3) of codes for object, colour and state as one float vector of ones and zeros."""
    cells = codes.reshape(-1, len(KINDS)).astype(np.int64)
    vector = np.zeros((len(cells), sum(KINDS)), np.float32)
    starts = np.cumsum((0, *KINDS[:-1]))
    vector[np.arange(len(cells))[:, None], cells + starts] = 1.0
    return vector.reshape(-1)


def word_counts(mission: str) -> np.ndarray:
    """How often each word occurs in a mission, words that are not known in the last place."""
    counts = np.zeros(len(WORDS) + 1, np.float32)
    for word in re.findall(r"\w+", mission.lower()):
        counts[WORD_INDEX.get(word, len(WORDS))] += 1
    return counts


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """The grid world of that name.

    A time limit comes on top of the world's own, which its rewards are scaled by. It is applied here, inside, so that
    an episode it cuts still reports whether it was a success.
    """
    importlib.import_module("minigrid")
    full_name = name if name.startswith("BabyAI-") else f"MiniGrid-{name}"
    with contextlib.redirect_stdout(io.StringIO()):  # some worlds are laid out as they are made
        env = gymnasium.make(full_name, render_mode="rgb_array", disable_env_checker=True)
    if options.time_limit:
        env = TimeLimit(env, options.time_limit * (options.repeat or 1))
    return MinigridEnv(env, options.minigrid.view, options.size or SIZE)


def tasks() -> list[str]:
    """All worlds but the WFC ones, whose patterns are missing in the package."""
    importlib.import_module("minigrid")
    names = [name for name in gymnasium.registry if name.startswith(("MiniGrid-", "BabyAI-")) and "-WFC-" not in name]
    return sorted(name.removeprefix("MiniGrid-") for name in names)


SUITE = Suite(
    name="minigrid",
    about="small grid worlds with a partial view and a mission in words",
    make=make,
    tasks=tasks,
    example="minigrid_Empty-5x5-v0",
    needs=("minigrid",),
    install=extra("minigrid"),
    handles=frozenset({"size", "time_limit"}),
)
