"""Weights rounded to half precision once, for functions that use them many times over."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .layers import BlockLinear

PRODUCTS = (nn.Linear, BlockLinear)
"""Modules whose products autocast takes in half precision."""


class Halved:
    """The weights of a module by name, as products take them under autocast, and without gradients."""

    def __init__(self, module: nn.Module) -> None:
        self.weights = dict(module.named_parameters())
        self.in_products = {
            f"{name}.{part}"
            for name, each in module.named_modules()
            for part, _ in each.named_parameters(recurse=False)
            if isinstance(each, PRODUCTS)
        }

    def __call__(self) -> dict[str, Tensor]:
        """The weights as they are now, rounded where autocast is on: once, and not at every use."""
        device = next(iter(self.weights.values())).device.type
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
        return {
            name: weight.detach().to(kind) if name in self.in_products else weight.detach()
            for name, weight in self.weights.items()
        }
