"""Any environment registered with Gymnasium: `gym_CartPole-v1`, `gym_ALE/Pong-v5`, or one that --imports registered."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from ...config.errors import UserError, nearest
from ...config.schema import EnvConfig
from .. import opengl
from ..registry import Suite, extra

EXTRAS = {"gymnasium.envs.box2d": ("Box2D", "box2d"), "gymnasium.envs.mujoco": ("mujoco", "mujoco")}
"""Where Gymnasium's own environments live that need more: the module they need and our extra that brings it."""

COSTLY_RENDER_MODES = ("gymnasium.envs.box2d.lunar_lander",)
"""Modules whose environments simulate decoration as soon as they have a render mode (LunarLander: 2.5 times slower)."""

SUCCESS_KEYS = ("success", "is_success")


class RegisteredEnv(gymnasium.Wrapper):
    """A registered environment that reports success where it tells of it and pays for pictures only when asked."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._hidden_mode: str | None = None
        if type(env.unwrapped).__module__ in COSTLY_RENDER_MODES:
            self._hidden_mode = env.unwrapped.render_mode
            env.unwrapped.render_mode = None

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]
        """The render mode, whether or not the environment knows of it at the moment."""
        return self._hidden_mode or self.env.render_mode

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, with `info["summary"]["success"]` where the environment tells of success.

        It is there at every step, since a time limit further out may make any step the last.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        for key in SUCCESS_KEYS:
            if key in info:
                info = {**info, "summary": {**info.get("summary", {}), "success": float(info[key])}}
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """The picture the environment draws of itself."""
        with opengl.offscreen():
            if self._hidden_mode is None:
                return self.env.render()
            self.env.unwrapped.render_mode = self._hidden_mode
            try:
                return self.env.render()
            finally:
                self.env.unwrapped.render_mode = None


class ClassicVector(gymnasium.vector.VectorWrapper):
    """Gymnasium's vector version of a classic control task, whose state can be saved and brought back."""

    def state(self) -> dict[str, Any]:
        """Where all environments stand, and their random state."""
        env: Any = self.env.unwrapped
        arrays = {name: getattr(env, name).copy() for name in ("state", "steps", "prev_done")}
        return arrays | {"random": json.dumps(env.np_random.bit_generator.state)}

    def restore(self, state: dict[str, Any]) -> Any:
        """The observations at a saved state."""
        env: Any = self.env.unwrapped
        for name in ("state", "steps", "prev_done"):
            setattr(env, name, np.array(state[name]))
        env.np_random.bit_generator.state = json.loads(state["random"])
        return env.state.T.astype(np.float32)


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """The registered environment of that id."""
    found = registered(name)
    try:
        return RegisteredEnv(created(found))
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise UserError(f"task 'gym_{name}' cannot be made: {remedy(found, error)}") from error
    except gymnasium.error.Error as error:
        raise UserError(f"task 'gym_{name}' cannot be made: {error}") from error


def registered(name: str) -> EnvSpec:
    """What Gymnasium's registry knows of an id."""
    if name.startswith("ALE/"):
        if importlib.util.find_spec("ale_py") is None:
            raise UserError(f"task 'gym_{name}' needs ale_py: {extra('atari')}")
        gymnasium.register_envs(importlib.import_module("ale_py"))
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        known = [f"gym_{known}" for known in gymnasium.registry]
        hint = nearest(f"gym_{name}", known)
        raise UserError(f"unknown task 'gym_{name}': {hint} (--imports loads modules that register others)") from error


def created(found: EnvSpec) -> gymnasium.Env:
    """The environment, able to draw where its class says it can."""
    entry: Any = found.entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    size = {}
    if str(entry).startswith("gymnasium.envs.mujoco"):
        hush_mujoco()
        size = {"width": 240, "height": 240}  # a quarter of the usual: drawing without a GPU is slow
    if "rgb_array" in getattr(creator, "metadata", {}).get("render_modes", ()):
        try:
            return gymnasium.make(found, render_mode="rgb_array", disable_env_checker=True, **size)
        except TypeError as error:
            if "render_mode" not in str(error):
                raise
    return gymnasium.make(found, disable_env_checker=True)


def hush_mujoco() -> None:
    """Send MuJoCo's warnings to our log instead of the screen and a file in the working directory."""
    mujoco: Any = importlib.import_module("mujoco")
    mujoco.set_mju_user_warning(logging.getLogger("reverie").debug)


def remedy(found: EnvSpec, error: Exception) -> str:
    """What to install for an environment that failed to load, or the error itself where that is not known."""
    for place, (module, bringer) in EXTRAS.items():
        if str(found.entry_point).startswith(place) and importlib.util.find_spec(module) is None:
            return f"it needs {module}: {extra(bringer)}"
    return str(error)


def make_vector(name: str, options: EnvConfig, count: int, training: bool) -> gymnasium.vector.VectorEnv | None:
    """Gymnasium's own vector version of an environment; None if it has none or options ask for more than it can."""
    found = registered(name)
    native = isinstance(found.vector_entry_point, str) and found.vector_entry_point.startswith("gymnasium.envs.classic")
    if not native or not training or (options.repeat or 1) > 1 or options.time_limit is not None:
        return None  # evaluations are filmed, which the vector version is not made for
    return ClassicVector(gymnasium.make_vec(found, num_envs=count, vectorization_mode="vector_entry_point"))


def tasks() -> list[str]:
    """An empty list: any id is allowed, since modules of the user's register more."""
    return []


SUITE = Suite(
    name="gym",
    about="any environment registered with Gymnasium, by its id",
    make=make,
    tasks=tasks,
    example="gym_CartPole-v1",
    needs=("gymnasium",),
    install="pip install gymnasium",
    make_vector=make_vector,
)
