"""MinAtar: five Atari games on a grid of 10 by 10 cells, one channel per kind of object.

The observation is `image`, uint8 (10, 10, c) of 0 and 255, so that it is scaled as pictures are and a small convolution
can read it. The channels are objects and not colours, hence there is no gray version; `--env.size` enlarges the cells.
The games have no time limit, but an excellent player never dies: episodes are cut after 5,000 steps, well beyond what
the published agents reach, unless `--env.time_limit` says otherwise (0: never).
"""

from __future__ import annotations

import colorsys
import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ...config.errors import UserError
from ...config.schema import EnvConfig
from ..registry import Suite, extra

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
TIME_LIMIT = 5000
"""Frames of the longest episode unless the user says otherwise."""
CELLS = 10
CELL_PIXELS = 16
"""Side of a cell in rendered pictures."""


class MinatarEnv(gymnasium.Env):
    """One game with its minimal actions and sticky actions as MinAtar defines them."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"

    def __init__(self, game: Any, sticky: float, size: int, limit: int) -> None:
        self._game = game
        self._sticky = sticky
        self._limit = limit
        self._actions = game.minimal_action_set()
        self._cells = np.arange(size) * CELLS // size
        channels = game.state_shape()[2]
        self._palette = palette(channels)
        self.observation_space = gymnasium.spaces.Dict(
            {"image": gymnasium.spaces.Box(0, 255, (size, size, channels), np.uint8)}
        )
        self.action_space = gymnasium.spaces.Discrete(len(self._actions))

    def get_action_meanings(self) -> list[str]:
        """The actions in words; MinAtar itself has a letter for each."""
        words = {"n": "noop", "l": "left", "u": "up", "r": "right", "d": "down", "f": "fire"}
        return [words[self._game.action_map[action]] for action in self._actions]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The first grid of a new game."""
        super().reset(seed=seed)
        # One generator for the game and the sticky actions, as in MinAtar; each episode starts from our own.
        self._game.random = np.random.RandomState(int(self.np_random.integers(2**31)))
        self._game.reset()
        self._last_action = 0
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """What one action leads to; the time limit is not an end of the game."""
        if self._game.random.rand() >= self._sticky:
            self._last_action = self._actions[int(action)]
        reward, terminated = self._game.act(self._last_action)
        self._steps += 1
        truncated = not terminated and 0 < self._limit <= self._steps
        return self._observation(), float(reward), bool(terminated), truncated, {}

    def render(self) -> np.ndarray:
        """A picture with one colour per kind of object; a later kind hides an earlier one."""
        state = self._game.state()
        kinds = (state * np.arange(1, state.shape[2] + 1)).max(2)
        return np.kron(self._palette[kinds], np.ones((CELL_PIXELS, CELL_PIXELS, 1), np.uint8))

    def _observation(self) -> dict[str, np.ndarray]:
        image = self._game.state().astype(np.uint8) * 255
        return {"image": image if len(self._cells) == CELLS else image[np.ix_(self._cells, self._cells)]}


def palette(channels: int) -> np.ndarray:
    """Black and one bright colour per channel, as uint8 (channels + 1, 3)."""
    colours = [colorsys.hsv_to_rgb(channel / channels, 0.7, 1.0) for channel in range(channels)]
    return (255 * np.array([(0.0, 0.0, 0.0), *colours])).astype(np.uint8)


def load_game(name: str) -> Any:
    """A new game of MinAtar's.

    The game's file is loaded by itself: importing the package loads matplotlib, seaborn and pandas as well, 2 seconds
    in every worker, for a window that is never opened.
    """
    package = importlib.util.find_spec("minatar")
    if package is None or package.submodule_search_locations is None:
        raise UserError(f"task 'minatar_{name}' needs minatar: {SUITE.install}")
    file = Path(package.submodule_search_locations[0], "environments", f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"minatar.environments.{name}", file)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Env(ramping=True)


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """The game of that name."""
    if options.gray:
        raise UserError("MinAtar has no gray version, its channels are objects and not colours: leave out --env.gray")
    limit = TIME_LIMIT if options.time_limit is None else 0
    return MinatarEnv(load_game(name), options.minatar.sticky, options.size or CELLS, limit)


def tasks() -> list[str]:
    """The five games."""
    return list(GAMES)


SUITE = Suite(
    name="minatar",
    about="five small Atari-like games on a 10 by 10 grid",
    make=make,
    tasks=tasks,
    example="minatar_breakout",
    needs=("minatar",),
    install=extra("minatar"),
    handles=frozenset({"size", "gray"}),
)
