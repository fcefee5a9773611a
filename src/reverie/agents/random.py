"""An agent that acts at random: a baseline, and the first thing to try on a new environment."""

from __future__ import annotations

import torch
from gymnasium import spaces

from ..config.schema import Config
from ..data.rows import Batch
from ..nn import ranks
from ..nn.actions import ActionCode
from .base import Agent, Carry, Mode


class RandomAgent(Agent):
    """Samples actions uniformly; learns nothing."""

    rollout = 128

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: Config, device: torch.device) -> None:
        super().__init__()
        self.code = ActionCode(action).to(device)
        self.generator = torch.Generator(device).manual_seed(config.seed + ranks.number())

    def act(self, rows: Batch, carry: Carry, mode: Mode) -> tuple[Batch, Carry]:
        """Uniform actions."""
        return {"action": self.code.random(len(rows["is_first"]), self.generator)}, carry
