"""Several processes that learn one agent together, each from rows of its own (torch distributed, by `torchrun`).

With one process alone, which is the rule, all of this does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn

Thing = TypeVar("Thing")

PATIENCE = timedelta(hours=24)
"""How long a process waits for the others, which may be evaluating."""


def count() -> int:
    """How many processes learn together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def number() -> int:
    """Which of them this is, from 0 on."""
    return distributed.get_rank() if count() > 1 else 0


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Inside, this process is one of those that `torchrun` has started, if it has started any."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or count() > 1:
        yield
        return
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def wait() -> None:
    """Go on when all processes have come here."""
    if count() > 1:
        distributed.barrier()


def agreed(thing: Thing) -> Thing:
    """What the first process has."""
    said = [thing]
    if count() > 1:
        distributed.broadcast_object_list(said)
    return said[0]


def average_(values: Tensor) -> Tensor:
    """The tensor, turned into its mean over all processes."""
    if count() > 1:
        distributed.all_reduce(values)
        values.div_(count())
    return values


def gathered(values: Tensor) -> Tensor:
    """The rows (n, ...) of all processes, one behind the other; each must have as many."""
    if count() == 1:
        return values
    parts = [torch.empty_like(values) for _ in range(count())]
    distributed.all_gather(parts, values.contiguous())
    return torch.cat(parts)


def sums(numbers: Sequence[float], device: torch.device) -> list[float]:
    """The numbers, each summed over all processes."""
    if count() == 1:
        return list(numbers)
    values = torch.tensor(numbers, dtype=torch.float64, device=device)
    distributed.all_reduce(values)
    return values.tolist()


def alike(module: nn.Module) -> None:
    """Give all processes the weights and statistics of the first."""
    if count() > 1:
        for value in module.state_dict().values():
            distributed.broadcast(value, 0)
