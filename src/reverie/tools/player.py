"""A trained agent in other programs: observations in, actions out, memory handled inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from ..agents.base import Agent, Mode
from ..collect.collector import playable
from ..config.errors import UserError


class Player:
    """Acts in one environment, one observation at a time."""

    def __init__(self, agent: Agent, make_env: Callable[[], gymnasium.Env], device: torch.device) -> None:
        self.agent, self.make_env, self.device = agent, make_env, device
        with make_env() as env:
            assert isinstance(env.observation_space, spaces.Dict)
            self.observation_space, self.action_space = env.observation_space, env.action_space
        self.value = float("nan")
        self.reset()

    def reset(self) -> None:
        """Forget the episode so far; call it when a new one begins."""
        self.carry = self.agent.initial_carry(1)
        self.first = True

    @torch.inference_mode()
    def act(self, observation: Any, stochastic: bool = False) -> Any:
        """The action for an observation: a number for Discrete spaces, else an array."""
        rows = {key: torch.from_numpy(value[None]).to(self.device) for key, value in self._checked(observation).items()}
        flags = {"is_first": self.first, "is_last": False, "is_terminal": False}
        rows |= {key: torch.tensor([flag], device=self.device) for key, flag in flags.items()}
        rows["reward"] = torch.zeros(1, device=self.device)
        mode: Mode = "train" if stochastic else "eval"
        added, self.carry = self.agent.act(rows, self.carry, mode)
        self.first = False
        if "value" in added:
            self.value = float(added["value"])
        action = playable(added["action"], self.action_space)[0]
        return int(action) if isinstance(self.action_space, spaces.Discrete) else action

    def _checked(self, observation: Any) -> dict[str, np.ndarray]:
        """The observation in the form the agent was trained on."""
        if not isinstance(observation, dict):
            if len(self.observation_space) > 1:
                raise UserError(f"the observation must be a dict with the keys {', '.join(self.observation_space)}")
            observation = {next(iter(self.observation_space)): observation}
        checked = {}
        for key, space in self.observation_space.items():
            if key not in observation:
                raise UserError(f"the observation has no {key!r}: the agent was trained with it")
            array = np.asarray(observation[key], dtype=space.dtype)
            if array.shape != space.shape:
                raise UserError(f"observation {key!r} has shape {array.shape}, the agent was trained on {space.shape}")
            checked[key] = array
        return checked
