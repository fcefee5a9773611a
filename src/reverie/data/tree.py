"""A tree of sums: draw places with chances proportional to their weights, among millions of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WIDTH = 128
"""Children of a node: three levels hold two million leaves, so that few operations walk the tree."""


class SumTree:
    """Weights by place, with their sums in levels above; every node is the sum of its children, never a running one."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.levels: list[Tensor] = []
        count = size
        while not self.levels or self.levels[-1].numel() > WIDTH:
            count = -(-count // WIDTH)
            self.levels.append(torch.zeros(count * WIDTH, dtype=torch.float64, device=device))

    def fill(self, start: int, stop: int, weight: Tensor) -> None:
        """Give the places from `start` to `stop` one weight."""
        self.levels[0][start:stop].copy_(weight)
        for lower, upper in zip(self.levels, self.levels[1:]):
            start, stop = start // WIDTH, -(-stop // WIDTH)
            upper[start:stop].copy_(lower.view(-1, WIDTH)[start:stop].sum(-1))

    def put(self, places: Tensor, weights: Tensor) -> None:
        """Give each place its weight; equal places must come with equal weights."""
        self.levels[0].index_copy_(0, places, weights)
        for lower, upper in zip(self.levels, self.levels[1:]):
            places = places // WIDTH
            upper.index_copy_(0, places, lower.view(-1, WIDTH).index_select(0, places).sum(-1))

    def total(self) -> Tensor:
        """The sum of all weights."""
        return self.levels[-1].sum()

    def before(self, place: int) -> Tensor:
        """The sum of the weights of all places before this one."""
        parts = []
        for level in self.levels:
            parts.append(level[place // WIDTH * WIDTH : place].sum())
            place //= WIDTH
        return torch.stack(parts).sum()

    def find(self, mass: Tensor) -> Tensor:
        """The places (n,) at which the sum of the weights, from the first place on, passes each `mass`."""
        node = torch.zeros_like(mass, dtype=torch.int64)
        for level in reversed(self.levels):
            weights = level.view(-1, WIDTH).index_select(0, node)  # n, WIDTH
            sums = weights.cumsum(-1)
            child = (sums <= mass[:, None]).sum(-1, keepdim=True).clamp_(max=WIDTH - 1)
            mass = (mass - (sums - weights).gather(1, child)[:, 0]).clamp_(min=0)
            node = node * WIDTH + child[:, 0]
        return node

    def state(self) -> dict[str, Any]:
        """The weights with all sums, so that a restored tree draws bit by bit the same."""
        return {"levels": [level.clone() for level in self.levels]}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        for level, values in zip(self.levels, saved["levels"], strict=True):
            if level.shape != values.shape:
                raise ValueError(f"priorities of {values.numel():,} steps, where {level.numel():,} are kept")
            level.copy_(values)
