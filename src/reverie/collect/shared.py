"""Tensors over memory that processes share."""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor

from ..data.rows import Batch
from ..data.storage import Layout
from ..envs.memory import ALIGN


def bytes_of(layout: Layout) -> int:
    """What the tensors of a layout take, each rounded up to whole cache lines."""
    return sum(_padded(shape, dtype) for shape, dtype in layout.values())


def tensors_over(block: mmap.mmap, layout: Layout, offset: int = 0) -> Batch:
    """The tensors of a layout as they lie in a block from `offset` on."""
    found: Batch = {}
    for name, (shape, dtype) in layout.items():
        found[name] = _tensor(block, shape, dtype, offset)
        offset += _padded(shape, dtype)
    return found


def with_lead(layout: Layout, *lead: int) -> Layout:
    """The layout of as many of its steps as the leading dimensions say."""
    return {name: ((*lead, *shape), dtype) for name, (shape, dtype) in layout.items()}


def _tensor(block: mmap.mmap, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> Tensor:
    count = math.prod(shape)
    flat = torch.frombuffer(block, dtype=dtype, count=count, offset=offset) if count else torch.empty(0, dtype=dtype)
    return flat.view(shape)


def _padded(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return -(-math.prod(shape) * dtype.itemsize // ALIGN) * ALIGN
