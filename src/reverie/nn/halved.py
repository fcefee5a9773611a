"""Weights rounded to half precision once, for functions that use them many times over."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .layers import BlockLinear

PRODUCTS = (nn.Linear, BlockLinear)
"""Modules whose products autocast takes in half precision."""


class Halved:
    """The weights of a module by name, as products take them under autocast, and without gradients."""

    def __init__(self, module: nn.Module, idle: tuple[str, ...] = ()) -> None:
        """Of all weights but the `idle` ones, which have names that begin so."""
        self.weights = {name: x for name, x in module.named_parameters() if not name.startswith(idle)}
        self.in_products = {
            f"{name}.{part}"
            for name, each in module.named_modules()
            for part, _ in each.named_parameters(recurse=False)
            if isinstance(each, PRODUCTS) and f"{name}.{part}" in self.weights
        }
        self.rounded: dict[str, Tensor] = {}

    def __call__(self) -> dict[str, Tensor]:
        """The weights as they are now, rounded where autocast is on: once, and not at every use.

        The next call writes to the same memory.
        """
        if self.kind == torch.float32:
            return {name: weight.detach() for name, weight in self.weights.items()}
        if not self.rounded:
            self.rounded = {name: torch.empty_like(self.weights[name], dtype=self.kind) for name in self.in_products}
        with torch.no_grad():
            torch._foreach_copy_(list(self.rounded.values()), [self.weights[name] for name in self.rounded])
        return {name: self.rounded.get(name, weight.detach()) for name, weight in self.weights.items()}

    @property
    def kind(self) -> torch.dtype:
        """What products are taken in now."""
        device = next(iter(self.weights.values())).device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
