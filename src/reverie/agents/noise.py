"""Noise on actions while collecting: the plainest way to come upon something new."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..config.dreamer import BehaviorConfig
from ..nn.actions import ActionCode, Policy


class ActionNoise(nn.Module):
    """Gaussian noise on continuous actions, a random action now and then for discrete ones, or nothing."""

    numbers: Tensor
    """1 where an entry of a coded action is a number, 0 where it belongs to a class."""

    def __init__(self, code: ActionCode, policy: Policy, config: BehaviorConfig) -> None:
        super().__init__()
        self.code = code
        self.noise = 0.0 if policy.discrete else config.noise
        self.epsilon = config.epsilon if policy.discrete else 0.0
        numbers = [float(not part.groups) for part in policy.parts for _ in range(part.size)]
        self.register_buffer("numbers", torch.tensor(numbers), persistent=False)

    def forward(self, vector: Tensor, generator: torch.Generator) -> Tensor:
        """The actions to play for coded ones (N, A)."""
        if self.noise:
            noise = torch.randn(vector.shape, generator=generator, device=vector.device)
            return self.code.decode((vector + self.noise * noise * self.numbers).clamp(-1, 1))
        action = self.code.decode(vector)
        if self.epsilon:
            chance = torch.rand(len(vector), generator=generator, device=vector.device)
            random = self.code.random(len(vector), generator)
            chosen = (chance < self.epsilon).reshape(-1, *[1] * (action.dim() - 1))
            action = torch.where(chosen, random, action)
        return action
