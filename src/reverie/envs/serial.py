"""Environments one after the other in this process: for cheap ones, and for finding faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..config.errors import UserError
from ..config.schema import EnvsConfig
from .memory import Memory, Plan
from .slot import Factory, Slot


class SerialVector(VectorEnv):
    """A vector environment without processes; what it returns stays valid until the step after next."""

    restarts = True
    """Single environments that break, or give numbers that are not finite, are restarted."""

    def __init__(self, factories: Sequence[Factory], seed: int, settings: EnvsConfig) -> None:
        self.base_seed = seed
        self.slots = [Slot(factory, index, seed, settings) for index, factory in enumerate(factories)]
        first = self.slots[0]
        for slot in self.slots[1:]:
            same_spaces(slot.index, slot.spaces, first.spaces)
        set_spaces(self, first.observation_space, first.action_space, len(factories))
        self.render_mode = first.env.render_mode if first.env is not None else None
        self.memory = Memory(Plan(first.observation_space, first.action_space, len(factories)))
        self.side = 0
        self.pending: np.ndarray | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """The first observations of new episodes; a seed starts the numbering of episodes again."""
        self.side ^= 1
        frame = self.memory.frames[self.side]
        for index, slot in enumerate(self.slots):
            frame.put(index, slot.reset(seed))
        return dict(frame.observation), frame.infos({})

    def step(self, actions: np.ndarray) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray, dict]:
        """What the actions lead to."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions; they are played by `step_wait`."""
        self.memory.action[:] = fitting(actions, self.memory.action)
        self.pending = self.memory.action

    def step_wait(self) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray, dict]:
        """What the actions taken last lead to."""
        if self.pending is None:
            raise RuntimeError("step_wait without step_async")
        actions, self.pending = self.pending, None
        self.side ^= 1
        frame, summaries = self.memory.frames[self.side], {}
        for index, slot in enumerate(self.slots):
            step = slot.step(actions[index])
            frame.put(index, step)
            if step.summary:
                summaries[index] = step.summary
        return *frame.outcome(), frame.infos(summaries)

    def state(self) -> dict[str, Any]:
        """What `restore` needs to bring deterministic environments back to where they are."""
        return {"slots": [slot.state() for slot in self.slots]}

    def restore(self, state: dict[str, Any]) -> dict[str, np.ndarray]:
        """The observations after playing the saved episodes again."""
        self.side ^= 1
        frame = self.memory.frames[self.side]
        for index, (slot, saved) in enumerate(zip(self.slots, state["slots"], strict=True)):
            frame.put(index, slot.restore(saved))
        return dict(frame.observation)

    def render(self) -> tuple[Any, ...] | None:
        """The picture of the first environment, None if it shows none."""
        (picture,) = self.pictures(1)
        return None if picture is None else (picture,)

    def pictures(self, count: int) -> list[Any]:
        """The pictures of the first environments, None for one that shows none."""
        return [slot.render() for slot in self.slots[:count]]

    def close_extras(self, **kwargs: Any) -> None:
        """Close all environments."""
        for slot in self.slots:
            slot.close()


def set_spaces(vector: VectorEnv, observation: spaces.Dict, action: gymnasium.Space, count: int) -> None:
    """Give a vector environment the attributes Gymnasium wants."""
    vector.num_envs = count
    vector.single_observation_space, vector.single_action_space = observation, action
    vector.observation_space, vector.action_space = batch_space(observation, count), batch_space(action, count)
    vector.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}


def same_spaces(index: int, pair: Sequence[gymnasium.Space], first: Sequence[gymnasium.Space]) -> None:
    """Refuse an environment whose observation and action space are not those of the first."""
    for word, mine, other in zip(("observation", "action"), pair, first, strict=True):
        if mine != other:
            raise UserError(f"environment {index} has another {word} space than environment 0: make them alike")


def fitting(actions: Any, target: np.ndarray) -> np.ndarray:
    """The actions as an array, refused where numpy would stretch or cut them to fit."""
    array = np.asarray(actions)
    if array.shape != target.shape:
        raise UserError(f"actions have shape {array.shape}, the environments want {target.shape}: send one action each")
    return array
