"""Where the columns of a replay live, what they take, and whether that much is free."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..config.errors import UserError
from .rows import Batch

Storage = Literal["ram", "pinned", "gpu", "disk"]
"""ram: memory of this machine. pinned: the same, page-locked, and read by the GPU itself. gpu: memory of the GPU.
disk: files mapped into memory."""

Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]
"""What one step holds: shape and dtype of each column."""

FOREIGN = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}
"""What a dtype that numpy does not know is seen as there."""

SHARE = 0.9
"""The part of what is free that a replay may take; the rest is for everything else."""


def layout_of(rows: Batch) -> Layout:
    """Shapes and dtypes of the columns of rows with two leading dimensions."""
    return {name: (tuple(value.shape[2:]), value.dtype) for name, value in rows.items()}


def array_of(tensor: Tensor) -> np.ndarray:
    """The memory of a tensor on the CPU as an array."""
    foreign = FOREIGN.get(tensor.dtype)
    return (tensor if foreign is None else tensor.view(foreign)).detach().numpy()


def plain(layout: Layout) -> dict[str, list[Any]]:
    """The layout as lists and words, for files."""
    return {name: [list(shape), str(dtype).removeprefix("torch.")] for name, (shape, dtype) in layout.items()}


def parsed(layout: dict[str, list[Any]]) -> Layout:
    """What `plain` was made of; a KeyError, TypeError or ValueError where it is something else."""
    found: Layout = {}
    for name, (shape, word) in layout.items():
        dtype = getattr(torch, word, None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"column {name} has no dtype {word}")
        found[name] = tuple(int(each) for each in shape), dtype
    return found


def bytes_per_step(layout: Layout) -> int:
    """The bytes that one step of one environment takes."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in layout.values())


def rows_of(capacity: int, envs: int) -> int:
    """Rows of a ring that holds `capacity` steps over all environments, rounded up."""
    return -(-capacity // envs)


def bytes_needed(layout: Layout, capacity: int, envs: int = 1) -> int:
    """The bytes that a full replay takes."""
    return rows_of(capacity, envs) * envs * bytes_per_step(layout)


def suited(layout: Layout, capacity: int, envs: int, device: torch.device) -> Storage:
    """Where a replay had best live: on the GPU if it leaves half of the free memory there to everything else."""
    if device.type != "cuda" or bytes_needed(layout, capacity, envs) > free_bytes("gpu", device) / 2:
        return "ram"
    return "gpu"


def check_fit(
    layout: Layout, capacity: int, envs: int, storage: Storage, device: torch.device, folder: Path | None = None
) -> None:
    """Refuse a replay that its place could not hold when full."""
    needed, free = bytes_needed(layout, capacity, envs), free_bytes(storage, device, folder)
    if needed <= SHARE * free:
        return
    place = {"gpu": "the GPU", "disk": str(folder)}.get(storage, "this machine's memory")
    fitting = int(SHARE * free / bytes_per_step(layout)) // 1000 * 1000
    other = "choose a --logdir with more room" if storage == "disk" else "use --replay.storage disk"
    raise UserError(
        f"a replay of {capacity:,} steps takes {needed / 1e9:.1f} GB ({bytes_per_step(layout):,} bytes a step), "
        f"but {place} has {free / 1e9:.1f} GB free: lower --replay.capacity to at most {fitting:,}, or {other}"
    )


def free_bytes(storage: Storage, device: torch.device, folder: Path | None = None) -> int:
    """What is free where a replay is to live; files it already has there count as free."""
    if storage == "gpu":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if storage == "disk":
        assert folder is not None
        own = sum(each.stat().st_blocks * 512 for each in folder.glob("*.bin"))
        there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        return shutil.disk_usage(there).free + own
    return free_memory()


def free_memory(root: Path = Path("/")) -> int:
    """Memory a process can still take: what the system has and what the control groups around it leave."""
    found = [sys.maxsize]
    meminfo = root / "proc/meminfo"
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        found.append(int(fields["MemAvailable"].split()[0]) * 1024)
    together = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # processes of torchrun on this machine
    return min([*found, *_group_memory(root)]) // together


def _group_memory(root: Path) -> Iterator[int]:
    """What each control group around this process leaves, in both versions of the interface."""
    listing = root / "proc/self/cgroup"
    for line in listing.read_text().splitlines() if listing.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup")
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        group = base / path.lstrip("/")
        for each in (group, *group.parents):
            if each.is_relative_to(base) and all((each / name).exists() for name in names):
                limit, used = ((each / name).read_text().strip() for name in names)
                if limit != "max":
                    yield max(0, int(limit) - int(used) + _cached(each))


def _cached(group: Path) -> int:
    """File pages of a control group, which the kernel gives up when memory runs short."""
    stat = group / "memory.stat"
    fields = dict(line.split() for line in stat.read_text().splitlines()) if stat.exists() else {}
    return int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))


def place_of(storage: Storage, device: torch.device) -> torch.device:
    """The device that works on the columns."""
    if storage in ("gpu", "pinned"):
        if device.type != "cuda":
            raise UserError(f"--replay.storage {storage} needs a CUDA device: use ram or disk")
        return device
    return torch.device("cpu")


def new_column(shape: tuple[int, ...], dtype: torch.dtype, storage: Storage, device: torch.device) -> Tensor:
    """An unfilled column in memory; RAM takes room only as it fills."""
    if storage == "pinned":
        count = math.prod(shape) * dtype.itemsize
        return torch.as_tensor(_Locked(count), device=device).view(dtype).view(shape)
    return torch.empty(shape, dtype=dtype, device=device if storage == "gpu" else "cpu")


class _Locked:
    """Page-locked memory that the GPU addresses as its own; registered by hand, as torch rounds up to powers of two."""

    def __init__(self, count: int) -> None:
        self.host = torch.empty(max(1, count), dtype=torch.uint8)
        status = torch.cuda.cudart().cudaHostRegister(self.host.data_ptr(), self.host.numel(), 0)
        if int(status):
            self.host = torch.empty(0, dtype=torch.uint8)
            raise UserError(f"cannot lock {count / 1e9:.1f} GB of memory for the replay: use --replay.storage ram")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.host.numel(),), "typestr": "|u1", "data": (self.host.data_ptr(), False), "version": 2}

    def __del__(self) -> None:
        if self.host.numel():
            torch.cuda.cudart().cudaHostUnregister(self.host.data_ptr())
