"""A trained agent in other programs: observations in, actions out, memory handled inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import torch

from ..agents.base import Agent, Mode
from ..collect.collector import playable
from ..envs.form import Observation
from ..envs.translation import Translation


class Player:
    """Acts in one environment, one observation at a time.

    `make_env` builds an environment of its task; `seen` is the last observation as the agent saw it, and `value` the
    return it expected from there.
    """

    def __init__(
        self, agent: Agent, translation: Translation, make_env: Callable[[], gymnasium.Env], device: torch.device
    ) -> None:
        self.agent, self.translation, self.make_env, self.device = agent, translation, make_env, device
        self.observation_space, self.action_space = translation.observation_space, translation.action_space
        self.seen: Observation = {}
        self.value = float("nan")
        self.reset()

    def reset(self) -> None:
        """Forget the episode so far; call it when a new one begins."""
        self.carry = self.agent.initial_carry(1)
        self.first = True

    @torch.inference_mode()
    def act(self, observation: Any, stochastic: bool = False) -> Any:
        """The action for an observation, as the `step` of its environment takes it.

        Observations are the environment's own; those in the form the agent was trained on are understood too.
        """
        self.seen = self.translation.observation(observation, self.first)
        rows = {key: torch.from_numpy(value[None]).to(self.device) for key, value in self.seen.items()}
        flags = {"is_first": self.first, "is_last": False, "is_terminal": False}
        rows |= {key: torch.tensor([flag], device=self.device) for key, flag in flags.items()}
        rows["reward"] = torch.zeros(1, device=self.device)
        mode: Mode = "sample" if stochastic else "eval"
        added, self.carry = self.agent.act(rows, self.carry, mode)
        self.first = False
        if "value" in added:
            self.value = float(added["value"])
        return self.translation.action(playable(added["action"], self.action_space)[0])
