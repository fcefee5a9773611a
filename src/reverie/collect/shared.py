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


def tensors_over(block: mmap.mmap | Tensor, layout: Layout, offset: int = 0) -> Batch:
    """The tensors of a layout as they lie in a block, or in a tensor of bytes, from `offset` on."""
    flat = block if isinstance(block, Tensor) else torch.frombuffer(block, dtype=torch.uint8)
    found: Batch = {}
    for name, (shape, dtype) in layout.items():
        found[name] = _tensor(flat, shape, dtype, offset)
        offset += _padded(shape, dtype)
    return found


def with_lead(layout: Layout, *lead: int) -> Layout:
    """The layout of as many of its steps as the leading dimensions say."""
    return {name: ((*lead, *shape), dtype) for name, (shape, dtype) in layout.items()}


def _tensor(flat: Tensor, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> Tensor:
    size = math.prod(shape) * dtype.itemsize
    return flat[offset : offset + size].view(dtype).view(shape)


def _padded(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return -(-math.prod(shape) * dtype.itemsize // ALIGN) * ALIGN
