"""The DeepMind Control Suite: `dmc_walker_walk`, with joint states, a camera image, or both.

Each action is played twice and an episode is 1,000 frames, as in the published curves; the repeat is done here, so that
frames the agent never sees are not drawn. Observations are float32 vectors with dm_control's names, and `image`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ...config.errors import UserError, nearest
from ...config.schema import DMCConfig, EnvConfig
from .. import opengl
from ..registry import Suite, extra

REPEAT = 2
SIZE = 64
VIDEO_SIZE = 256
USUAL_CAMERAS = {"quadruped": 2}
"""Cameras Dreamer's results were made with, where it is not camera 0."""
ALIASES = {"cup_catch": ("ball_in_cup", "catch")}
ENDLESS = {"lqr": 30.0}
"""Seconds an episode lasts in domains that set no limit themselves: 1,000 frames, as everywhere else."""
UNBOUNDED = 1e9
"""MuJoCo gives 1e10 as the bound of an actuator that has none."""


class View:
    """Draws a task's physics from one camera; nothing of OpenGL exists before the first picture.

    A fast view leaves out shadows, reflections and anti-aliasing, which are nine tenths of the work on a CPU.
    """

    def __init__(self, physics: Any, camera: int, fast: bool, largest: int) -> None:
        if not -1 <= camera < physics.model.ncam:
            raise UserError(f"there is no camera {camera}: this task has cameras 0 to {physics.model.ncam - 1}")
        settings = physics.model.vis
        settings.global_.offwidth = settings.global_.offheight = largest
        if fast:
            settings.quality.offsamples = 0
        self._flags = {"shadow": False, "reflection": False} if fast else {}
        self._physics = physics
        self._camera = camera
        self._drawers: dict[int, Any] = {}

    def picture(self, size: int) -> np.ndarray:
        """What the camera sees now, as uint8 (size, size, 3)."""
        if size not in self._drawers:
            self._drawers[size] = self._drawer(size)
        return np.array(self._drawers[size].render(render_flag_overrides=self._flags), order="C")

    def _drawer(self, size: int) -> Any:
        from dm_control.mujoco.engine import Camera
        from mujoco import FatalError

        try:
            return Camera(self._physics, size, size, self._camera)
        except (RuntimeError, FatalError) as error:
            raise UserError(f"MuJoCo cannot draw here ({error}): {opengl.ADVICE}") from error


class ControlEnv(gymnasium.Env):
    """A control task behind Gymnasium's interface, with actions from -1 to 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}
    render_mode = "rgb_array"

    def __init__(self, task: Any, view: View, repeat: int, proprio: bool, size: int) -> None:
        self._task = task
        self._view = view
        self._repeat = repeat
        self._proprio = proprio
        self._size = size  # of the image that is observed, 0 for none
        spec = task.action_spec()
        bounded = (np.abs(spec.minimum) < UNBOUNDED) & (np.abs(spec.maximum) < UNBOUNDED)
        self._low = np.where(bounded, spec.minimum, -1.0)
        self._high = np.where(bounded, spec.maximum, 1.0)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, spec.shape, np.float32)
        entries: dict[str, gymnasium.Space] = {}
        for key, value in (task.observation_spec() if proprio else {}).items():
            width = int(np.prod(value.shape))
            entries[key] = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        if size:
            entries["image"] = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.observation_space = gymnasium.spaces.Dict(entries)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The first observation of a new episode."""
        super().reset(seed=seed)
        self._task.task.random.seed(int(self.np_random.integers(2**31)))
        return self._observation(self._task.reset().observation), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """What an action leads to, with the rewards of its repeats summed.

        A last step with discount 0 is a real end; one with discount 1 has run out of time.
        """
        share = (np.clip(np.asarray(action, np.float64), -1.0, 1.0) + 1.0) / 2.0
        control = self._low + share * (self._high - self._low)
        reward = 0.0
        for _ in range(self._repeat):
            now = self._task.step(control)
            reward += float(now.reward)
            if now.last():
                break
        terminated = bool(now.last() and now.discount == 0)
        return self._observation(now.observation), reward, terminated, bool(now.last()) and not terminated, {}

    def render(self) -> np.ndarray:
        """A larger picture, from the same camera."""
        return self._view.picture(VIDEO_SIZE)

    def close(self) -> None:
        """Free what MuJoCo and OpenGL hold."""
        self._task.physics.free()

    def _observation(self, values: dict[str, Any]) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        if self._proprio:
            found = {key: np.array(value, np.float32).reshape(-1) for key, value in values.items()}
        if self._size:
            found["image"] = self._view.picture(self._size)
        return found


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """The control task of that name."""
    domain, level = split(name)
    chosen = options.dmc
    size = 0 if chosen.observation == "proprio" else options.size or SIZE
    task = load(domain, level, unlimited=options.time_limit is not None)
    view = View(task.physics, camera(domain, chosen), chosen.fast_render, max(size, VIDEO_SIZE))
    if size:
        view.picture(size)  # a machine that cannot draw says so now and not in the middle of a run
    return ControlEnv(task, view, options.repeat or REPEAT, chosen.observation != "vision", size)


def load(domain: str, level: str, unlimited: bool) -> Any:
    """The task as dm_control makes it; the fixed random state makes the models of `lqr` the same everywhere."""
    keywords: dict[str, Any] = {"random": 0}
    if unlimited:
        keywords["time_limit"] = float("inf")
    elif domain in ENDLESS:
        keywords["time_limit"] = ENDLESS[domain]
    return control_suite().load(domain, level, task_kwargs=keywords)


def camera(domain: str, options: DMCConfig) -> int:
    """The camera the user chose, or the usual one of the domain."""
    return USUAL_CAMERAS.get(domain, 0) if options.camera == -1 else options.camera


def control_suite() -> Any:
    """dm_control's suite, loaded with a way of drawing that works here, or without any where none does."""
    failure: Exception | None = None
    for backend in ("egl", "osmesa", "disable") if opengl.undecided() else ("",):
        try:
            with opengl.offscreen(backend):
                return importlib.import_module("dm_control.suite")
        except (ImportError, AttributeError, RuntimeError) as error:  # what PyOpenGL raises without its library
            failure = failure or error
    raise UserError(f"dm_control does not load ({failure}): {SUITE.install}; to draw, {opengl.ADVICE}") from failure


def known_tasks() -> dict[str, tuple[str, str]]:
    """Names of tasks with their domain and level.

    They are read from the suite's files: importing it loads MuJoCo and opens OpenGL, which the process that merely
    starts the workers should not.
    """
    package = importlib.util.find_spec("dm_control")
    places = (package.submodule_search_locations if package else None) or []
    names = dict(ALIASES)
    for file in sorted(file for place in places for file in Path(place, "suite").glob("*.py")):
        for level in re.findall(r"^@SUITE\.add\([^)]*\)\s*def (\w+)\(", file.read_text("utf-8"), re.MULTILINE):
            names[f"{file.stem}_{level}"] = (file.stem, level)
    return names


def split(name: str) -> tuple[str, str]:
    """The domain and the level of a task; both may contain underscores."""
    known = known_tasks()
    if name not in known:
        raise UserError(f"unknown task 'dmc_{name}': {nearest(name, known)}")
    return known[name]


def tasks() -> list[str]:
    """All tasks of the suite."""
    return sorted(known_tasks())


SUITE = Suite(
    name="dmc",
    about="control tasks of the DeepMind Control Suite, from joint states or pixels",
    make=make,
    tasks=tasks,
    example="dmc_walker_walk",
    needs=("dm_control", "mujoco"),
    install=extra("dmc"),
    repeat=REPEAT,
    handles=frozenset({"repeat", "size"}),
)
