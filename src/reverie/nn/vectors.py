"""Observations that are no images, as vectors."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ..data.rows import Batch
from ..envs.form import is_image
from .blocks import one_hot


class VectorForm:
    """Observations that are no images, as vectors: numbers as they are, classes one-hot."""

    def __init__(self, space: spaces.Dict) -> None:
        self.classes: dict[str, tuple[int, ...]] = {}
        self.numbers: dict[str, int] = {}
        for key, each in space.items():
            if isinstance(each, spaces.Discrete):
                self.classes[key] = (int(each.n),)
            elif isinstance(each, spaces.MultiDiscrete):
                self.classes[key] = tuple(int(n) for n in np.ravel(each.nvec))
            elif isinstance(each, spaces.MultiBinary):
                self.classes[key] = (2,) * math.prod(each.shape)
            elif not is_image(each):
                self.numbers[key] = math.prod(each.shape or (1,))
        self.size = sum(self.numbers.values()) + sum(sum(sizes) for sizes in self.classes.values())

    def number(self, rows: Batch, key: str) -> Tensor:
        """A numeric observation as float32 (..., n)."""
        return rows[key].reshape(*rows["is_first"].shape, -1).float()

    def one_hots(self, rows: Batch, key: str) -> Tensor:
        """A discrete observation as one-hot vectors side by side (..., n)."""
        sizes = self.classes[key]
        values = rows[key].reshape(*rows["is_first"].shape, len(sizes))
        return torch.cat([one_hot(values[..., i], size) for i, size in enumerate(sizes)], -1)
