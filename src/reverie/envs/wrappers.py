"""What is put around every environment: the options that all suites share, and the standard form."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from ..config.errors import UserError
from ..config.schema import EnvConfig
from . import checks
from .form import ActionForm, Observation, ObservationForm, is_image
from .images import AreaResize

LUMINANCE = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in gray, as television has them (ITU-R BT.601)."""

Outcome = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


def standard(env: gymnasium.Env, options: EnvConfig, repeat: int, handles: frozenset[str]) -> gymnasium.Env:
    """The environment with its options applied, unless the suite handles them itself, and in the standard form."""
    return formed(paced(env, options, repeat, handles), options, handles)


def paced(env: gymnasium.Env, options: EnvConfig, repeat: int, handles: frozenset[str]) -> gymnasium.Env:
    """The environment with its actions repeated and its time limited, in the form it has."""
    repeat = options.repeat or repeat
    if repeat > 1 and "repeat" not in handles:
        env = Repeat(env, repeat)
    if options.time_limit is not None and "time_limit" not in handles:
        env = without_time_limit(env)
        env = TimeLimit(env, options.time_limit) if options.time_limit else env
    return env


def formed(env: gymnasium.Env, options: EnvConfig, handles: frozenset[str], tells: bool = True) -> gymnasium.Env:
    """The environment in the standard form, its images as the options say; whether it tells of small faults."""
    env = Standard(env, tells)
    size = None if "size" in handles else options.size
    gray = bool(options.gray) and "gray" not in handles
    if size or gray:
        env = Images(env, size, gray)
    if (options.stack or 1) > 1 and "stack" not in handles:
        env = Stack(env, options.stack or 1)
    return env


class Repeat(gymnasium.Wrapper):
    """Plays each action several times: rewards are summed, an end stops it, a life lost anywhere is reported."""

    def __init__(self, env: gymnasium.Env, times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> Outcome:
        """The last outcome with the sum of rewards."""
        total, life_lost = 0.0, False
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            life_lost = life_lost or bool(info.get("life_lost", False))
            if terminated or truncated:
                break
        if life_lost:
            info = {**info, "life_lost": True}
        return observation, total, terminated, truncated, info


def without_time_limit(env: gymnasium.Env) -> gymnasium.Env:
    """The environment with every TimeLimit taken out of its wrappers; limits of its own stay."""
    if not isinstance(env, gymnasium.Wrapper):
        return env
    inner = without_time_limit(env.env)
    if isinstance(env, TimeLimit):
        return inner
    env.env = inner
    return env


class Standard(gymnasium.Wrapper):
    """Shows observations as a flat dict of fresh arrays and takes actions of the standard form."""

    def __init__(self, env: gymnasium.Env, tells: bool = True) -> None:
        super().__init__(env)
        self.tells = tells
        self.form = ObservationForm(env.observation_space)
        self.action_form = ActionForm(env.action_space)
        self.observation_space = self.form.space
        self.action_space = self.action_form.space
        self.checked = 0
        self.index = 0
        self.untold = False

    def watch(self, index: int, steps: int) -> None:
        """Check what the environment itself returns at its next steps, and call it by that index in messages."""
        self.index, self.checked = index, steps
        self.untold = self.tells and index == 0  # small faults are told once, not by every environment

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        """The first observation in the standard form."""
        observation, info = self.env.reset(seed=seed, options=options)
        if self.checked:
            checks.raw_observation(self.form, observation, self.index, tell=self.untold)
            self.untold = False
        return self.form(observation), dict(info)

    def step(self, action: Any) -> Outcome:
        """The next observation in the standard form."""
        observation, reward, terminated, truncated, info = self.env.step(self.action_form(action))
        if self.checked:
            self.checked -= 1
            checks.raw_observation(self.form, observation, self.index)
            checks.raw_reward(reward, self.index)
        return self.form(observation), float(reward), bool(terminated), bool(truncated), dict(info)


def watch(env: gymnasium.Env, index: int, steps: int) -> None:
    """Check what an environment returns at its next steps, whatever is wrapped around its standard form."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, Standard):
            env.watch(index, steps)
        env = env.env


class Images(gymnasium.ObservationWrapper):
    """Images in another size or in gray; other observations stay."""

    def __init__(self, env: gymnasium.Env, size: int | None, gray: bool) -> None:
        super().__init__(env)
        entries = dict(space_entries(env))
        self.changes: dict[str, list[Callable[[np.ndarray], np.ndarray]]] = {}
        for key, space in entries.items():
            if is_image(space):
                shape = space.shape or ()
                self.changes[key], shape = image_changes(key, (shape[0], shape[1], shape[2]), size, gray)
                entries[key] = spaces.Box(0, 255, shape, np.uint8)
        self.observation_space = spaces.Dict(entries)

    def observation(self, observation: Observation) -> Observation:
        """The observation with changed images."""
        for key, steps in self.changes.items():
            for step in steps:
                observation[key] = step(observation[key])
        return observation


def image_changes(
    key: str, shape: tuple[int, int, int], size: int | None, gray: bool
) -> tuple[list[Callable[[np.ndarray], np.ndarray]], tuple[int, int, int]]:
    """The functions an image goes through and its shape in the end; gray first, as one channel is resized faster."""
    height, width, channels = shape
    steps: list[Callable[[np.ndarray], np.ndarray]] = []
    if gray and channels != 1:
        if channels not in (3, 4):
            raise UserError(
                f"observation {key!r} has {channels} channels, which cannot be turned gray: leave --env.gray"
            )
        steps.append(luminance)
        channels = 1
    if size and (height, width) != (size, size):
        steps.append(AreaResize(height, width, size))
        height = width = size
    return steps, (height, width, channels)


def luminance(image: np.ndarray) -> np.ndarray:
    """A colour image (h, w, 3 or 4) in gray, as uint8 (h, w, 1)."""
    red, green, blue = (image[..., channel] * np.float32(weight) for channel, weight in enumerate(LUMINANCE))
    return np.rint(red + green + blue).astype(np.uint8)[..., None]


class Stack(gymnasium.Wrapper):
    """Images of several steps along the channels, the newest last; an episode starts with its first image repeated."""

    def __init__(self, env: gymnasium.Env, count: int) -> None:
        super().__init__(env)
        entries = dict(space_entries(env))
        self.history = {key: deque[np.ndarray](maxlen=count) for key, space in entries.items() if is_image(space)}
        for key in self.history:
            height, width, channels = entries[key].shape or ()
            entries[key] = spaces.Box(0, 255, (height, width, channels * count), np.uint8)
        self.observation_space = spaces.Dict(entries)
        self.count = count

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        """The first observation, its images repeated."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self.stacked(observation, first=True), info

    def step(self, action: Any) -> Outcome:
        """The next observation, its images behind those before."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.stacked(observation, first=False), reward, terminated, truncated, info

    def stacked(self, observation: Observation, first: bool) -> Observation:
        """The observation with stacks in place of images."""
        for key, images in self.history.items():
            images.extend([observation[key]] * (self.count if first else 1))
        return {**observation, **{key: np.concatenate(images, -1) for key, images in self.history.items()}}


def space_entries(env: gymnasium.Env) -> dict[str, gymnasium.Space]:
    """The spaces of a Dict observation by key."""
    assert isinstance(env.observation_space, spaces.Dict)
    return env.observation_space.spaces
