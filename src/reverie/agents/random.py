"""An agent that acts at random: a baseline, and the first thing to try on a new environment."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces

from ..data.rows import Batch
from .base import Agent, Carry, Mode, restore_random


class RandomAgent(Agent):
    """Samples actions uniformly; learns nothing."""

    rollout = 128

    def __init__(self, action_space: spaces.Space, seed: int, device: torch.device) -> None:
        super().__init__()
        self.space = action_space
        self.generator = torch.Generator(device).manual_seed(seed)

    def act(self, rows: Batch, carry: Carry, mode: Mode) -> tuple[Batch, Carry]:
        """Uniform actions."""
        count, device = rows["is_first"].shape[0], rows["is_first"].device
        space = self.space
        if isinstance(space, spaces.Discrete):
            action = torch.randint(int(space.n), (count,), generator=self.generator, device=device)
        elif isinstance(space, spaces.MultiDiscrete):
            sizes = torch.as_tensor(space.nvec, device=device)
            share = torch.rand(count, len(sizes), generator=self.generator, device=device)
            action = (share * sizes).long().clamp(max=sizes - 1)
        else:
            assert isinstance(space, spaces.Box)
            low = torch.as_tensor(space.low, device=device).clamp(min=-1e3)
            high = torch.as_tensor(space.high, device=device).clamp(max=1e3)
            share = torch.rand(count, *space.shape, generator=self.generator, device=device)
            action = low + share * (high - low)
        return {"action": action}, carry

    def save(self) -> dict[str, Any]:
        """The generator's state."""
        return super().save() | {"generator": self.generator.get_state()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `save` gave."""
        super().restore(saved)
        restore_random(self.generator, saved["generator"])
