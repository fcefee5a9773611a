"""An agent that acts at random: a baseline, and the first thing to try on a new environment."""

from __future__ import annotations

import torch
from gymnasium import spaces

from ..data.rows import Batch
from ..nn.actions import ActionCode
from .base import Agent, Carry, Mode


class RandomAgent(Agent):
    """Samples actions uniformly; learns nothing."""

    rollout = 128

    def __init__(self, action_space: spaces.Space, seed: int, device: torch.device) -> None:
        super().__init__()
        self.code = ActionCode(action_space).to(device)
        self.generator = torch.Generator(device).manual_seed(seed)

    def act(self, rows: Batch, carry: Carry, mode: Mode) -> tuple[Batch, Carry]:
        """Uniform actions."""
        return {"action": self.code.random(len(rows["is_first"]), self.generator)}, carry
