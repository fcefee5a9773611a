"""The weights that acting needs, in memory that the learner and all generators share."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import mmap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.storage import Layout
from .shared import bytes_of, tensors_over

LOG = logging.getLogger("reverie")

COPIES = 3
"""One that is the newest, one that some still act with, one to be written."""
NOBODY = -1


@dataclass(frozen=True)
class WeightsPlan:
    """What the block holds."""

    tensors: Layout
    readers: int

    @classmethod
    def of(cls, tensors: Sequence[Tensor], readers: int) -> WeightsPlan:
        """The plan for tensors like these."""
        layout = {str(number): (tuple(tensor.shape), tensor.dtype) for number, tensor in enumerate(tensors)}
        return cls(layout, readers)

    @property
    def header(self) -> Layout:
        """The numbers before the weights."""
        numbers = {"newest": (), "acted": (), "versions": (COPIES,), "used": (self.readers,)}
        return {name: (shape, torch.int64) for name, shape in numbers.items()}

    def size(self) -> int:
        """The bytes of the block."""
        return bytes_of(self.header) + COPIES * bytes_of(self.tensors)


class Weights:
    """Some copies of the weights, each of a version. Readers act with them in place, so that all share one cache.

    The learner writes into a copy that is neither the newest nor used, and a reader says which one it uses; both look
    under a lock of the block's file, which the system opens again when its holder dies.
    """

    def __init__(self, plan: WeightsPlan, file: int, block: mmap.mmap) -> None:
        self.file = file
        header = tensors_over(block, plan.header)
        self.address, self.size = header["newest"].data_ptr(), plan.size()
        self.newest, self.acted, self.versions, self.used = (header[name] for name in plan.header)
        begin, size = bytes_of(plan.header), bytes_of(plan.tensors)
        flat = torch.frombuffer(block, dtype=torch.uint8)
        self.places = [flat[begin + copy * size :][:size] for copy in range(COPIES)]
        self.copies = [list(tensors_over(place, plan.tensors).values()) for place in self.places]
        self.plan = plan
        self.locked = False
        self.staging: Staging | None = None
        self.arriving: tuple[int, int, torch.cuda.Event] | None = None

    def clear(self) -> None:
        """Let nobody use anything; the newest copy is the first, still to be written."""
        self.newest.zero_()
        self.versions.zero_()
        self.used.fill_(NOBODY)
        for tensor in (tensor for copy in self.copies for tensor in copy):
            tensor.zero_()  # so that the system finds the pages now and not while the learner waits

    def lock_pages(self) -> None:
        """Let a GPU write here by itself while the learner goes on; where that cannot be, the learner waits for it."""
        code = int(torch.cuda.cudart().cudaHostRegister(self.address, self.size, 0))
        self.locked = not code
        if code:
            forget_error()
            LOG.warning(f"memory of the weights is not locked (CUDA error {code}): publishing makes the learner wait")

    def unlock_pages(self) -> None:
        """Undo `lock_pages`, once nothing is on its way here."""
        if self.locked:
            self.settle(wait=True)
            torch.cuda.cudart().cudaHostUnregister(self.address)
            self.locked = False

    @torch.no_grad()
    def publish(self, tensors: Sequence[Tensor], version: int) -> bool:
        """Make these the newest weights, from a GPU as soon as they have arrived; False if no copy is free for them."""
        self.settle()
        with self._locked():
            taken = {int(self.newest), *self.used.tolist()}
        free = next((copy for copy in range(COPIES) if copy not in taken), None)
        if free is None or self.arriving is not None:
            return False
        if any(tensor.is_cuda for tensor in tensors):
            self.staging = self.staging or Staging(self.plan.tensors)
            self.arriving = free, version, self.staging.sent(tensors, self.places[free])
            return True
        for target, tensor in zip(self.copies[free], tensors):
            target.copy_(tensor)
        self._show(free, version)
        return True

    def settle(self, wait: bool = False) -> None:
        """Make what has arrived from a GPU the newest, after waiting for it if asked to."""
        if self.arriving is not None:
            copy, version, event = self.arriving
            if wait:
                event.synchronize()
            if event.query():
                self._show(copy, version)
                self.arriving = None

    def _show(self, copy: int, version: int) -> None:
        with self._locked():
            self.versions[copy] = version
            self.newest.fill_(copy)

    def take(self, reader: int) -> tuple[list[Tensor], int]:
        """The newest weights and their version; they stay as they are until `release`."""
        with self._locked():
            copy = int(self.newest)
            self.used[reader] = copy
        return self.copies[copy], int(self.versions[copy])

    def release(self, reader: int) -> None:
        """Use none any more."""
        with self._locked():
            self.used[reader] = NOBODY

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN)


class Staging:
    """Room on a GPU where weights wait for their journey, so that updates may change them meanwhile."""

    def __init__(self, layout: Layout) -> None:
        self.flat = torch.empty(bytes_of(layout), dtype=torch.uint8, device="cuda")
        self.parts = list(tensors_over(self.flat, layout).values())
        self.stream = torch.cuda.Stream()

    def sent(self, tensors: Sequence[Tensor], place: Tensor) -> torch.cuda.Event:
        """What happens when the weights have arrived at a place, to which they go beside everything else."""
        torch._foreach_copy_(self.parts, list(tensors))
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            place.copy_(self.flat, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        return event


def forget_error() -> None:
    """Take CUDA's last error, which the next kernel would raise as its own; torch has no call for that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).partition('.')[0]}").cudaGetLastError()


class Seldom:
    """Says when something may be done again so that it takes a small share of the time."""

    def __init__(self, share: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.share, self.clock = share, clock
        self.cost = 0.0
        self.ended = float("-inf")

    @property
    def due(self) -> bool:
        """Whether enough time has passed."""
        return self.clock() - self.ended >= self.cost * (1 / self.share - 1)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Inside, it is done."""
        begin = self.clock()
        yield
        self.ended = self.clock()
        self.cost = self.ended - begin
