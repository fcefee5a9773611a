"""Rows on their way to a GPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..data.rows import Batch, Rows
from ..envs.memory import ALIGN


class Transfer:
    """Takes rows to where an agent is: to a GPU all columns in one copy, from memory that is locked for it.

    What it gives is overwritten by the next rows there.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.form: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        self.arrays: Rows = {}
        """The columns as they lie in memory here, and below on the GPU."""
        self.tensors: Batch = {}

    def __call__(self, rows: Rows) -> Batch:
        """The rows as tensors."""
        if self.device.type == "cpu":
            return {name: torch.from_numpy(value) for name, value in rows.items()}
        form = {name: (value.shape, value.dtype) for name, value in rows.items()}
        if form != self.form:
            self._prepare(rows)
            self.form = form
        self.arrived.synchronize()
        for name, value in rows.items():
            self.arrays[name][...] = value
        self.there.copy_(self.here, non_blocking=True)
        self.arrived.record()
        return dict(self.tensors)

    def _prepare(self, rows: Rows) -> None:
        """Make room for rows like these, each column with its axes in the order that they have in memory now."""
        sizes = {name: -(-value.nbytes // ALIGN) * ALIGN for name, value in rows.items()}
        self.here = torch.empty(sum(sizes.values()), dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        self.there = torch.empty_like(self.here, device=self.device)
        self.arrived = torch.cuda.Event()
        self.arrays, self.tensors = {}, {}
        offset = 0
        for name, value in rows.items():
            self.arrays[name] = _like(value, self.here[offset : offset + value.nbytes]).numpy()
            self.tensors[name] = _like(value, self.there[offset : offset + value.nbytes])
            offset += sizes[name]


def _like(value: np.ndarray, memory: Tensor) -> Tensor:
    """The memory as a tensor of the array's shape and dtype, its axes in the same order."""
    order = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
    flat = memory.view(torch.from_numpy(np.empty(0, value.dtype)).dtype)
    inverse = [order.index(axis) for axis in range(value.ndim)]
    return flat.view([value.shape[axis] for axis in order]).permute(inverse)
