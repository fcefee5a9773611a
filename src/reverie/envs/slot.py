"""One environment's place in a vector: it starts episodes with their own seeds and restarts what breaks."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from ..config.errors import UserError
from ..config.schema import EnvsConfig
from . import checks, wrappers
from .form import float_keys

Factory = Callable[[], gymnasium.Env]
"""Builds an environment in the standard form. To reach worker processes it must be picklable."""


class Step(NamedTuple):
    """What one environment shows after one step."""

    observation: dict[str, np.ndarray]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    life_lost: bool = False
    broken: bool = False
    summary: dict[str, float] | None = None


class Past(NamedTuple):
    """What a slot takes over from one that was lost with its process."""

    episode: int = -1
    """The number of the last episode that was begun."""
    breaks: int = 0
    running: dict[str, np.ndarray] | None = None
    """The last observation of an episode that was running."""


NO_PAST = Past()

BREAKS = (Exception, SystemExit)
"""What an environment may end with: libraries of games call `sys.exit`, too."""


class Spoiled(Exception):
    """An environment gave numbers that are not finite, which is a break: nothing must be learned from them."""


class Slot:
    """A place for one environment. Episode k of slot i starts with a seed derived from (seed, i, k)."""

    def __init__(self, factory: Factory, index: int, seed: int, settings: EnvsConfig, past: Past = NO_PAST) -> None:
        self.factory = factory
        self.index = index
        self.seed = seed
        self.settings = settings
        self.episode, self.breaks, self.last = past.episode, past.breaks, past.running
        self.lost = past.running is not None
        self.ended = past.running is None
        self.actions: list[Any] = []
        self.name = getattr(factory, "name", "")
        self.checked = checks.STEPS if settings.checks and past.episode < 0 else 0
        self.played = 0
        self.env: gymnasium.Env | None = None
        first = self.build()
        self.observation_space, self.action_space = dict_space(first), first.action_space
        self.floats = float_keys(self.observation_space)
        self.spaces = (self.observation_space, self.action_space)

    def build(self) -> gymnasium.Env:
        """The environment, built anew until that works."""
        while self.env is None:
            try:
                self.env = self.factory()
                self.name = self.name or type(self.env.unwrapped).__name__
                wrappers.watch(self.env, self.index, self.checked)
            except UserError:
                raise
            except BREAKS as error:
                self.fail(error)
        return self.env

    def reset(self, seed: int | None = None) -> Step:
        """The first observation of a new episode; a seed starts the numbering of episodes again."""
        if seed is not None:
            self.seed, self.episode = seed, -1
        return Step(self.begin())

    def step(self, action: Any) -> Step:
        """What the action leads to; after an end, the first observation of the next episode."""
        if self.ended:
            return Step(self.begin())
        if self.lost:
            return self.broken_end()
        try:
            return self.play(action)
        except UserError:
            raise
        except BREAKS as error:
            self.fail(error)
            return self.broken_end()

    def play(self, action: Any) -> Step:
        """One step of the environment itself."""
        assert self.env is not None
        observation, reward, terminated, truncated, info = self.env.step(action)
        if fault := checks.spoiled(observation, self.floats, float(reward)):
            raise Spoiled(fault)
        self.actions.append(action.copy() if isinstance(action, np.ndarray) else action)
        self.last = observation
        self.played += 1
        self.ended = terminated or truncated
        life_lost = bool(info.get("life_lost", False))
        if not self.ended:
            return Step(observation, float(reward), life_lost=life_lost)
        figures = summary(info)
        self.breaks = 0
        return Step(observation, float(reward), terminated, truncated, life_lost, False, figures)

    def begin(self) -> dict[str, np.ndarray]:
        """The first observation of the next episode that can be started."""
        while True:
            env = self.build()
            self.episode += 1
            try:
                return self.start(env)
            except UserError:
                raise
            except BREAKS as error:
                self.fail(error)

    def start(self, env: gymnasium.Env) -> dict[str, np.ndarray]:
        """The first observation of the episode that has the current number."""
        seed = episode_seed(self.seed, self.index, self.episode)
        self.actions = []
        env.action_space.seed(seed)
        observation, _ = env.reset(seed=seed)
        if fault := checks.spoiled(observation, self.floats, 0.0):
            raise Spoiled(fault)
        self.last, self.ended, self.lost = observation, False, False
        return observation

    def broken_end(self) -> Step:
        """The last good observation again, as the end of an episode that broke."""
        self.ended, self.lost = True, False
        return Step(self.last_observation(), truncated=True, broken=True)

    def last_observation(self) -> dict[str, np.ndarray]:
        """The newest observation there is; zeros before the first."""
        if self.last is None:
            entries = self.observation_space.spaces.items()
            self.last = {key: np.zeros(space.shape or (), space.dtype) for key, space in entries}
        return self.last

    def fail(self, error: BaseException) -> None:
        """Throw the environment away after an error; too many in a row stop everything."""
        self.breaks += 1
        told = tell(error)
        if isinstance(error, Spoiled) or self.played >= checks.STEPS:
            self.checked = 0  # the checks of first steps end a run, and it is past these
        if self.breaks >= self.settings.max_restarts:
            self.close()
            raise UserError(too_often(self.index, self.name, self.breaks, told)) from error
        logging.getLogger("reverie").warning(
            f"environment {self.index}{named(self.name)} broke and is restarted: {told}"
        )
        self.close()

    def state(self) -> dict[str, Any]:
        """What brings a deterministic environment back to where it is."""
        lost = self.ended or self.lost
        return {"seed": self.seed, "episode": self.episode, "actions": np.array(self.actions), "ended": lost}

    def restore(self, state: dict[str, Any]) -> Step:
        """The observation after playing a saved episode again; a break starts nothing new but ends the episode."""
        self.seed, self.episode = int(state["seed"]), int(state["episode"])
        if self.episode < 0:  # saved before its first episode
            return Step(self.last_observation())
        try:
            self.start(self.build())
            for action in state["actions"]:
                if not self.ended:
                    self.play(action)
            self.ended = self.ended or bool(state["ended"])
        except UserError:
            raise
        except BREAKS as error:
            self.fail(error)
            self.ended = True
        return Step(self.last_observation())

    def render(self) -> Any:
        """The environment's picture, None if it shows none."""
        return self.env.render() if self.env is not None and self.env.render_mode else None

    def close(self) -> None:
        """Close the environment, come what may: one that broke may well fail here too."""
        env, self.env = self.env, None
        if env is not None:
            try:
                env.close()
            except BREAKS as error:
                logging.getLogger("reverie").debug(f"environment {self.index} did not close: {tell(error)}")


def episode_seed(seed: int, index: int, episode: int) -> int:
    """The 31-bit seed of one episode of one slot."""
    return int(np.random.SeedSequence((seed, index, episode)).generate_state(1)[0] & 0x7FFFFFFF)


def summary(info: dict[str, Any]) -> dict[str, float]:
    """The figures an environment reports at the end of an episode; None is one that it does not know."""
    found = {f"info['{key}']": ("success", info[key]) for key in ("is_success", "success") if key in info}
    found |= {f"info['summary']['{key}']": (key, value) for key, value in (info.get("summary") or {}).items()}
    figures: dict[str, float] = {}
    for place, (name, value) in found.items():
        if value is not None:
            figures[name] = _number(place, value)
    return figures


def _number(place: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        told = textwrap.shorten(repr(value), 80)
        raise UserError(f"{place} is {told} at the end of an episode: give a number, true or false") from None


def dict_space(env: gymnasium.Env) -> spaces.Dict:
    """The observation space of an environment in the standard form."""
    if not isinstance(env.observation_space, spaces.Dict):
        raise UserError(f"{env} shows no Dict observation: wrap it with reverie.envs.wrappers.standard")
    return env.observation_space


def tell(error: BaseException) -> str:
    """One line of what an error is and where it came from."""
    if isinstance(error, Spoiled):
        return str(error)
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place, trace = f" ({Path(code.co_filename).name}:{trace.tb_lineno})", trace.tb_next
    return f"{type(error).__name__}: {error}{place}".replace("\n", " ")


def named(name: str) -> str:
    """A name in brackets, where there is one."""
    return f" ({name})" if name else ""


def too_often(index: int, name: str, breaks: int, told: str) -> str:
    """The message for an environment that keeps breaking."""
    times = "once" if breaks == 1 else f"{breaks} times in a row without finishing an episode"
    return f"environment {index}{named(name)} broke {times}: {told}: mend it, or allow more with --envs.max_restarts"
