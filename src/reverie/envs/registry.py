"""The registry of suites: from a task's name to an environment.

A task is `suite_name` (`gym_CartPole-v1`, `atari_pong`, `dmc_walker_walk`) or `module:Class` for a class of the user's
own. Each suite is one small file in suites/ and is imported only when one of its tasks is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium

from ..config.errors import UserError, nearest
from ..config.presets import PRESETS
from ..config.schema import EnvConfig
from . import wrappers

SUITES = ("gym", "atari", "dmc", "crafter", "mario", "minigrid", "minatar", "toy", "godot", "minecraft", "custom")

MakeEnv = Callable[[str, EnvConfig, bool], gymnasium.Env]
"""(task name inside the suite, options, training) -> environment."""

MakeVector = Callable[[str, EnvConfig, int, bool], "gymnasium.vector.VectorEnv | None"]
"""(task name inside the suite, options, count, training) -> the suite's own vector environment, None if it has none."""


@dataclass(frozen=True)
class Suite:
    """What the registry knows of a suite.

    Contract of the environments that `make` returns: a Gymnasium environment; `info["life_lost"]` marks a terminal that
    does not end the episode; `info["summary"]` (a dict of floats) at the end of an episode reports figures such as
    `success`. Images are uint8 (h, w, c).
    """

    name: str
    about: str
    make: MakeEnv
    tasks: Callable[[], list[str]]
    """Known task names; an empty list accepts any name and leaves the check to `make`."""
    example: str = ""
    needs: tuple[str, ...] = ()
    """Modules that must be importable."""
    install: str = ""
    """How to install them."""
    programs: tuple[str, ...] = ()
    """Programs of which one is needed; `make` asks for it, since a task may bring its own."""
    repeat: int = 1
    """Frames per step unless the user says otherwise."""
    handles: frozenset[str] = frozenset()
    """Options of EnvConfig the suite's own `make` obeys, so that the generic wrappers must not apply them again."""
    make_vector: MakeVector | None = None

    def missing(self) -> list[str]:
        """Modules this suite needs that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    def absent(self) -> list[str]:
        """Modules and programs this suite needs that are not installed."""
        programs = self.programs if not any(shutil.which(name) for name in self.programs) else ()
        return [*self.missing(), *programs[:1]]


def extra(name: str) -> str:
    """How to get a suite that an extra of the package installs."""
    return f"pip install 'reverie[{name}]' (in a checkout: make setup-suites, or pip install -e '.[{name}]')"


def suite(name: str) -> Suite:
    """The suite of that name."""
    if name not in SUITES:
        raise UserError(f"unknown suite {name!r}: {nearest(name, SUITES)}")
    found: Any = importlib.import_module(f"reverie.envs.suites.{name}")
    return found.SUITE


def find(task: str) -> tuple[Suite, str]:
    """The suite a task belongs to, checked to be installed, and the task's name inside it."""
    if ":" in task:
        return suite("custom"), task
    prefix, _, name = task.partition("_")
    if prefix not in SUITES or not name:
        preset = f"--configs {task} is a preset of that name; as a task, " if task in PRESETS else ""
        raise UserError(f"unknown task {task!r}: {preset}{nearest_task(task)}")
    owner = suite(prefix)
    if missing := owner.missing():
        raise UserError(f"task {task!r} needs {', '.join(missing)}: {owner.install}")
    known = owner.tasks()
    if known and name not in known:
        raise UserError(f"unknown task {task!r}: {nearest(task, [f'{prefix}_{word}' for word in known])}")
    return owner, name


def nearest_task(task: str) -> str:
    """A phrase naming known tasks like `task` in the suites that are installed."""
    names: list[str] = []
    for name in SUITES:
        if name != "custom" and not (owner := suite(name)).missing():
            names += [f"{name}_{word}" for word in owner.tasks()]
    hint = nearest(task, names)
    return (
        hint if hint.startswith("did") else f"tasks are SUITE_NAME with a suite of {', '.join(SUITES)}, or module:Class"
    )


def make_env(task: str, options: EnvConfig, training: bool = True, imports: tuple[str, ...] = ()) -> gymnasium.Env:
    """One environment of a task, with the wrappers its options ask for and a Dict observation."""
    env = make_own_env(task, options, training, imports)
    return wrappers.formed(env, options, find(task)[0].handles, tells=training)  # those that evaluate are the same


def make_own_env(task: str, options: EnvConfig, training: bool = True, imports: tuple[str, ...] = ()) -> gymnasium.Env:
    """One environment of a task that shows and takes what it does by itself, only repeated and limited in time."""
    import_modules(imports)
    owner, name = find(task)
    env = owner.make(name, options, training)
    return wrappers.paced(env, options, owner.repeat, owner.handles)


def import_modules(names: tuple[str, ...]) -> None:
    """Import the user's own modules, which register environments as they load."""
    for name in names:
        try:
            user_module(name)
        except Exception as error:  # the user's code runs here, and may fail in any way
            raise UserError(f"cannot import {name!r} given by --imports: {type(error).__name__}: {error}") from error


def user_module(name: str) -> Any:
    """A module of the user's, looked for in the current folder too."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def frames_per_step(task: str, options: EnvConfig) -> int:
    """How many frames one agent step takes."""
    return options.repeat or find(task)[0].repeat
