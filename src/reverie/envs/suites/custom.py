"""A user's own environment, named `module:Class`: a Gymnasium class, or a function that returns an environment."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import gymnasium

from ...config.errors import UserError, nearest
from ...config.schema import EnvConfig
from ..registry import Suite, user_module
from ..slot import tell


class CustomEnv(gymnasium.Wrapper):
    """The user's environment, with a plain word about results that are not Gymnasium's."""

    def __init__(self, env: gymnasium.Env, task: str) -> None:
        super().__init__(env)
        self.task = task

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observation and an info dict."""
        result: Any = self.env.reset(seed=seed, options=options)
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            raise UserError(f"{self.task}: reset() must return (observation, info): see Gymnasium's Env.reset")
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """What Gymnasium's step returns."""
        result: Any = self.env.step(action)
        if not isinstance(result, tuple) or len(result) != 5:
            count = len(result) if isinstance(result, tuple) else 1
            raise UserError(
                f"{self.task}: step() returned {count} values, the old gym's API has 4: "
                "return (observation, reward, terminated, truncated, info)"
            )
        return result


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """The environment that the named class or function makes."""
    env = build(found(name), name)
    if not isinstance(env, gymnasium.Env):
        raise UserError(
            f"{name} is not a Gymnasium environment but a {type(env).__name__}: derive it from gymnasium.Env"
        )
    for word in ("observation_space", "action_space"):
        if not isinstance(getattr(env, word, None), gymnasium.Space):
            raise UserError(f"{name} has no {word}: set it to a gymnasium.spaces space in __init__")
    return CustomEnv(env, name)


def found(name: str) -> Callable[..., Any]:
    """The class or function that `module:Class` names; modules in the current directory are found too."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UserError(f"task {name!r} is incomplete: write module:Class")
    try:
        module = user_module(module_name)
    except Exception as error:  # the user's code runs here, and may fail in any way
        told = f"{type(error).__name__}: {error}"
        raise UserError(f"task {name!r} cannot be imported: {told} (looked in {os.getcwd()} too)") from error
    if not callable(target := getattr(module, attribute, None)):
        if module_name == "__main__":
            raise UserError(f"task {name!r} was defined in a program without a file: put it into a module")
        known = [word for word, value in vars(module).items() if inspect.isclass(value)]
        raise UserError(f"module {module_name!r} has no class or function {attribute!r}: {nearest(attribute, known)}")
    return target


def build(target: Callable[..., Any], name: str) -> Any:
    """What the class or function returns; it is asked to draw pictures where it says it can."""
    parameters = inspect.signature(target).parameters
    metadata = getattr(target, "metadata", None)  # a wrapper's own is known only once it wraps something
    modes = metadata.get("render_modes", ()) if isinstance(metadata, dict) else ()
    arguments = {"render_mode": "rgb_array"} if "render_mode" in parameters and "rgb_array" in modes else {}
    needed = [
        word
        for word, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and word not in arguments
    ]
    if needed:
        raise UserError(f"{name} needs the arguments {', '.join(needed)}: name a function that gives them")
    try:
        return target(**arguments)
    except (UserError, OSError, RuntimeError):  # a program it needs may not be up yet: its slot tries again
        raise
    except Exception as error:  # the user's code runs here, and may fail in any way
        raise UserError(f"{name} cannot be made: {tell(error)}: mend it") from error


SUITE = Suite(
    name="custom",
    about="your own Gymnasium environment as module:Class",
    make=make,
    tasks=list,
    example="my_module:MyEnv",
)
