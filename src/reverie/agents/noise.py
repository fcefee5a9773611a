"""Noise on actions while collecting: the plainest way to come upon something new."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..config.dreamer import BehaviorConfig
from ..nn.actions import ActionCode, Policy


class ActionNoise(nn.Module):
    """Gaussian noise on numbers of actions, a random choice now and then where there are choices, or nothing."""

    numbers: Tensor
    """Which entries of a coded action are numbers; others belong to a class."""

    def __init__(self, code: ActionCode, policy: Policy, config: BehaviorConfig) -> None:
        super().__init__()
        self.code = code
        numbers = [not part.groups for part in policy.parts for _ in range(part.size)]
        self.noise = config.noise if any(numbers) else 0.0
        self.epsilon = 0.0 if all(numbers) else config.epsilon
        self.register_buffer("numbers", torch.tensor(numbers), persistent=False)

    def forward(self, vector: Tensor, generator: torch.Generator) -> Tensor:
        """The actions to play for coded ones (N, A)."""
        if self.noise:
            noise = torch.randn(vector.shape, generator=generator, device=vector.device)
            vector = (vector + self.noise * noise * self.numbers).clamp(-1, 1)
        if self.epsilon:
            chance = torch.rand(len(vector), generator=generator, device=vector.device)
            random = self.code.encode(self.code.random(len(vector), generator)).to(vector.dtype)
            vector = torch.where((chance < self.epsilon).unsqueeze(-1) & ~self.numbers, random, vector)
        return self.code.decode(vector)
