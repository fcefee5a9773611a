"""Minecraft through MineRL: `minecraft_MineRLTreechop-v0`, or any other id that MineRL registers.

MineRL is installed by the user: it needs Java 8 and downloads and builds the game itself. The observation is `image`
and a float vector for each number or group of numbers MineRL gives; the actions are one key or one turn at a time.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from ...config.errors import UserError
from ...config.schema import EnvConfig
from ..images import AreaResize
from ..registry import Suite

SIZE = 64
KEYS = ("attack", "forward", "back", "left", "right", "jump", "sneak", "sprint", "use")
TURNS = ((-15.0, 0.0), (15.0, 0.0), (0.0, -15.0), (0.0, 15.0))
"""Degrees of pitch and yaw."""
INSTALL = "install Java 8 (openjdk-8-jdk), then pip install minerl==0.4.4, which downloads and builds Minecraft"


class MinecraftEnv(gymnasium.Env):
    """A MineRL world behind Gymnasium's interface; MineRL itself speaks that of the old gym."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    render_mode = "rgb_array"

    def __init__(self, world: Any, size: int) -> None:
        self._world = world
        height, width, _ = world.observation_space.spaces["pov"].shape
        self._resize = AreaResize(height, width, size)
        self._paths = sorted(number_paths(world.observation_space.spaces))
        self._actions = action_set(world.action_space)
        self._frame = np.zeros((height, width, 3), np.uint8)
        entries: dict[str, gymnasium.Space] = {"image": gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)}
        for path in self._paths:
            shape = at(world.observation_space.spaces, path).shape
            entries["/".join(path)] = gymnasium.spaces.Box(-np.inf, np.inf, (int(np.prod(shape)),), np.float32)
        self.observation_space = gymnasium.spaces.Dict(entries)
        self.action_space = gymnasium.spaces.Discrete(len(self._actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The first view of a new world."""
        super().reset(seed=seed)
        self._world.seed(int(self.np_random.integers(2**31)))
        return self._observation(self._world.reset()), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """What one key leads to."""
        observation, reward, done, info = self._world.step({**self._actions[0], **self._actions[int(action)]})
        truncated = bool(done and info.get("TimeLimit.truncated", False))
        return self._observation(observation), float(reward), bool(done) and not truncated, truncated, {}

    def render(self) -> np.ndarray:
        """The last view as the game drew it."""
        return self._frame.copy()

    def close(self) -> None:
        """End the game."""
        self._world.close()

    def _observation(self, observation: dict[str, Any]) -> dict[str, np.ndarray]:
        self._frame = np.array(observation["pov"], np.uint8)
        found = {"/".join(path): np.array(at(observation, path), np.float32).reshape(-1) for path in self._paths}
        return {"image": self._resize(self._frame), **found}


def number_paths(spaces: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The ways through nested spaces to everything that is a number; names of things and the picture are left out."""
    found = []
    for key, space in spaces.items():
        if hasattr(space, "spaces"):
            found += number_paths(space.spaces, (*path, key))
        elif key != "pov" and not hasattr(space, "values"):
            found.append((*path, key))
    return found


def at(tree: Any, path: tuple[str, ...]) -> Any:
    """What a path leads to, through dicts and spaces."""
    for key in path:
        tree = getattr(tree, "spaces", tree)[key]
    return tree


def action_set(space: Any) -> list[dict[str, Any]]:
    """What the agent can do at one step: nothing, one key, a jump forward, a turn, or one thing to craft or place."""
    idle = dict(space.no_op() if hasattr(space, "no_op") else space.noop())
    single = [{key: 1} for key in KEYS if key in space.spaces]
    turns = [{"camera": np.array(turn, np.float32)} for turn in TURNS]
    things = [
        {key: value}
        for key, choice in space.spaces.items()
        for value in getattr(choice, "values", ())
        if value not in ("none", "other#*")
    ]
    return [idle, *single, {"jump": 1, "forward": 1}, *turns, *things]


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """The MineRL world of that id."""
    try:
        importlib.import_module("minerl")
        old_gym: Any = importlib.import_module("gym")
    except ImportError as error:
        raise UserError(f"task 'minecraft_{name}' needs minerl: {INSTALL}") from error
    try:
        world = old_gym.make(name)
    except old_gym.error.Error as error:
        raise UserError(f"unknown task 'minecraft_{name}': {error}") from error
    return MinecraftEnv(world, options.size or SIZE)


def tasks() -> list[str]:
    """An empty list: MineRL's own registry decides."""
    return []


SUITE = Suite(
    name="minecraft",
    about="Minecraft through MineRL, which the user installs",
    make=make,
    tasks=tasks,
    example="minecraft_MineRLTreechop-v0",
    needs=("minerl",),
    install=INSTALL,
    handles=frozenset({"size"}),
)
