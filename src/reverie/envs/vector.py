"""From a task's name to a vector environment: which backend runs it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from ..config.errors import UserError
from ..config.schema import EnvConfig, EnvsConfig
from . import registry
from .process import ProcessVector, core_count
from .serial import SerialVector

CHEAP = 300e-6
"""Seconds a step of all environments one after the other may take; above, processes bring more than they cost."""

TRIAL = 0.3
"""Seconds spent at most on timing an environment."""

TRIAL_STEPS = 200


@dataclass(frozen=True)
class Maker:
    """Builds one environment of a task, here or in a worker process."""

    name: str
    options: EnvConfig
    training: bool = True
    imports: tuple[str, ...] = ()

    def __call__(self) -> gymnasium.Env:
        """A new environment."""
        return registry.make_env(self.name, self.options, self.training, self.imports)


def make_vector(
    task: str,
    env: EnvConfig,
    envs: EnvsConfig,
    seed: int,
    training: bool = True,
    imports: tuple[str, ...] = (),
    count: int | None = None,
) -> VectorEnv:
    """Environments of a task as one vector environment with next-step autoreset, on the backend `envs` asks for."""
    count = envs.count if count is None else count
    if count < 1:
        raise UserError(f"--envs.count is {count}: at least one environment is needed")
    maker = Maker(task, env, training, imports)
    if envs.backend in ("auto", "native"):
        native = native_vector(maker, count)
        if native is not None:
            return NativeVector(native, seed)
        if envs.backend == "native":
            raise UserError(f"task {task!r} has no vector environment of its own: use --envs.backend auto")
    backend = envs.backend if envs.backend != "auto" else chosen_backend(maker, count)
    kind: Callable[..., VectorEnv] = SerialVector if backend == "serial" else ProcessVector
    return kind([maker] * count, seed, replace(envs, count=count))


def native_vector(maker: Maker, count: int) -> VectorEnv | None:
    """The suite's own vector environment of a task, if it has one that obeys the options."""
    registry.import_modules(maker.imports)
    suite, name = registry.find(maker.name)
    return suite.make_vector(name, maker.options, count, maker.training) if suite.make_vector is not None else None


def chosen_backend(maker: Maker, count: int) -> str:
    """`serial` where processes would not pay: one environment, one core, or cheap steps. Results are the same."""
    if count == 1 or core_count() == 1:
        return "serial"
    return "serial" if step_seconds(maker) * count < CHEAP else "process"


def step_seconds(maker: Maker) -> float:
    """The usual time of a step with random actions; infinite for an environment that breaks."""
    try:
        with closing(maker()) as env:
            env.action_space.seed(0)
            env.reset(seed=0)
            return timed(env)
    except UserError:
        raise
    except Exception:  # the slots of the vector environment know how to tell and mend this
        return float("inf")


def timed(env: gymnasium.Env) -> float:
    """The median time of some steps of an environment that was reset: what else the machine does hardly moves it."""
    times: list[float] = []
    limit, ended = time.perf_counter() + TRIAL, False
    while len(times) < TRIAL_STEPS and (not times or time.perf_counter() < limit):
        if ended:
            env.reset()
        action = env.action_space.sample()
        begin = time.perf_counter()
        ended = any(env.step(action)[2:4])
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


class NativeVector(VectorWrapper):
    """A suite's own vector environment, reset with seeds derived from one, and asynchronous where it can be."""

    def __init__(self, env: VectorEnv, seed: int) -> None:
        super().__init__(env)
        self.base_seed = seed
        self.seeds = np.random.SeedSequence(seed)
        self.sent: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """The first observations of new episodes."""
        if seed is None:
            (child,) = self.seeds.spawn(1)
        else:
            child = np.random.SeedSequence(seed)  # neighbouring seeds must not give neighbouring environments
        return self.env.reset(seed=int(child.generate_state(1)[0] & 0x7FFFFFFF), options=options)

    def step_async(self, actions: np.ndarray) -> None:
        """Send the actions; an environment that cannot play them meanwhile plays them in `step_wait`."""
        self.sent = actions
        if hasattr(self.env, "step_async"):
            self.env.step_async(actions)

    def step_wait(self) -> tuple[Any, Any, Any, Any, dict]:
        """What the actions sent last lead to."""
        return self.env.step_wait() if hasattr(self.env, "step_wait") else self.env.step(self.sent)

    def state(self) -> dict[str, Any] | None:
        """What `restore` needs, None where the suite's environment cannot be brought back."""
        env: Any = self.env
        return env.state() if callable(getattr(env, "restore", None)) else None

    def restore(self, state: dict[str, Any]) -> Any:
        """The observations at a saved state."""
        env: Any = self.env
        return env.restore(state)
