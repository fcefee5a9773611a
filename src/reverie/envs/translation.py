"""Between what an environment shows and takes by itself and what an agent sees and chooses, without the environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ..config.errors import UserError
from ..config.schema import EnvConfig
from .form import Leaf, Observation
from .wrappers import Images, Stack, Standard, formed, space_entries


class Spaces(gymnasium.Env):
    """The spaces of an environment, to be wrapped in its place."""

    def __init__(self, env: gymnasium.Env) -> None:
        self.observation_space, self.action_space = env.observation_space, env.action_space


class Translation:
    """Does to observations and actions what the wrappers of `formed` do; images are stacked over one episode."""

    def __init__(self, env: gymnasium.Env, options: EnvConfig, handles: frozenset[str]) -> None:
        layer = formed(Spaces(env), options, handles)
        self.observation_space = spaces.Dict(space_entries(layer))
        self.action_space = layer.action_space
        self.layers: list[Images | Stack] = []
        while isinstance(layer, Images | Stack):
            self.layers.insert(0, layer)
            layer = layer.env
        assert isinstance(layer, Standard)
        self.form, self.action_form = layer.form, layer.action_form

    def observation(self, shown: Any, first: bool) -> Observation:
        """What the agent sees of the environment's own observation; one that already is what it sees stays as it is.

        Where an observation could be either, it is taken for the environment's own.
        """
        if not all(fits(leaf, shown) for leaf in self.form.leaves):
            return self.seen(shown)
        observation = self.form(shown)
        for layer in self.layers:
            observation = (
                layer.stacked(observation, first) if isinstance(layer, Stack) else layer.observation(observation)
            )
        return observation

    def seen(self, shown: Any) -> Observation:
        """An observation that is in the agent's form, checked."""
        entries = self.observation_space.spaces
        if not isinstance(shown, dict):
            if len(entries) > 1:
                keys = ", ".join(entries)
                raise UserError(f"the observation does not fit {self.form.raw}: give that, or a dict with {keys}")
            shown = {next(iter(entries)): shown}
        checked = {}
        for key, space in entries.items():
            if key not in shown:
                raise UserError(f"the observation has no {key!r}: the agent was trained with it")
            array = np.asarray(shown[key])
            if array.shape != space.shape or not convertible(array, space):
                told = f"{array.dtype} of shape {array.shape}"
                raise UserError(f"observation {key!r} is {told}, the agent was trained on {space.dtype} {space.shape}")
            if not exists(array, space):
                raise UserError(f"observation {key!r} is {array.tolist()}, outside of {space}")
            checked[key] = array.astype(space.dtype)
        return checked

    def action(self, action: Any) -> Any:
        """The agent's action as the environment's `step` takes it; a plain number for Discrete spaces."""
        own = self.action_form(action)
        return int(own) if self.action_form.single else own


def fits(leaf: Leaf, observation: Any) -> bool:
    """Whether an observation has at a leaf's place what the environment itself shows there."""
    try:
        value = np.asarray(leaf.find(observation))
    except (KeyError, IndexError, TypeError):
        return False
    return value.shape == leaf.raw.shape and convertible(value, leaf.space) and exists(value, leaf.raw)


def exists(value: np.ndarray, space: gymnasium.Space) -> bool:
    """Whether there are such classes in a space; other spaces have none, and their bounds are not looked at."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return True
    place = value.astype(np.int64) - space.start
    return bool(((place >= 0) & (place < (space.n if isinstance(space, spaces.Discrete) else space.nvec))).all())


def convertible(array: np.ndarray, space: gymnasium.Space) -> bool:
    """Whether numbers can become those of a space without a loss: fractions are no integers."""
    return array.dtype.kind in ("biuf" if np.dtype(space.dtype).kind == "f" else "biu")
