"""Processes that compile an agent's functions while it learns; what they find stays in torch's cache on disk."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import cloudpickle
import torch
from torch.utils._triton import has_triton

from .. import __version__
from ..agents import compiled
from ..agents.base import Agent
from ..agents.compiled import Regions
from ..agents.dreamer import Dreamer
from ..config.errors import UserError
from ..config.schema import Config
from ..data.storage import Layout, free_memory
from ..envs.process import core_count
from ..nn import ranks

LOG = logging.getLogger("reverie")

MODULE = "reverie.training.compiling"
MOST = 10
"""Processes: one function takes so much longer than the others that more would be of no use."""
MEMORY = 4e9
"""Bytes of memory that a process takes."""
THREADS = 4
"""Kernels that each of them compiles at the same time, if there are cores for it."""
CONTEXT, ROWS, WEIGHTS = 0.6e9, 2.5e6, 120
"""Bytes that a process takes on a GPU: at any rate, for each row of a batch, and for each weight."""
SHARE = 0.5
"""The part of what is free on a GPU that processes may take together."""


@dataclass(frozen=True)
class Order:
    """What a process is to compile."""

    make: Callable[[], Agent]
    layout: Layout
    """Columns of the rows that the agent learns from."""
    names: tuple[str, ...]
    backend: str
    precision: str
    """How torch takes products of float32, which is part of what is compiled."""
    threads: int


class Compilers:
    """A crew of processes, which load torch while their orders are still to come."""

    def __init__(self, count: int, mark: Path | None = None) -> None:
        """That all is compiled is marked by a file."""
        self.mark = mark
        self.processes: list[subprocess.Popen[bytes]] = []
        self.dismissal = weakref.finalize(self, dismiss, self.processes)  # also if nobody closes this
        threads = max(1, min(THREADS, 2 * core_count() // max(1, count)))
        with contextlib.suppress(OSError):  # as many as the system lets there be
            while len(self.processes) < count:
                self.processes.append(launched(threads))
        self.said = [b""] * count
        self.orders: list[set[str]] = [set() for _ in range(count)]
        """What each has still to do."""
        self.done: set[str] = set()
        self.reason = ""

    def order(self, regions: Regions, make: Callable[[], Agent], layout: Layout, room: int) -> None:
        """Let at most `room` processes make an agent each and compile a share of its functions."""
        count = min(len(self.processes), len(regions), room)
        for names, held, process in zip(shares(regions, count), self.orders, self.processes):
            held.update(names)
            settings = torch.get_float32_matmul_precision(), torch.get_num_threads()
            order = Order(make, layout, tuple(names), compiled.BACKEND, *settings)
            assert process.stdin is not None
            # a process that still loads torch reads nothing yet
            threading.Thread(target=_send, args=(process.stdin, cloudpickle.dumps(order)), daemon=True).start()
        dismiss(self.processes[count:])
        if not room:
            self.reason = "the GPU has no room for processes that would"

    def finished(self) -> set[str]:
        """What has been compiled by now."""
        for number, process in enumerate(self.processes):
            if self.orders[number]:
                self._listen(number, process)
        if self.mark is not None and self.done and not any(self.orders) and not self.reason:
            with contextlib.suppress(OSError):  # then later runs have processes, too
                self.mark.parent.mkdir(parents=True, exist_ok=True)
                self.mark.touch()
            self.mark = None
        return self.done

    def trouble(self) -> str:
        """Why something will not be."""
        return self.reason

    def _listen(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Read what a process has said since the last time."""
        heard, over = _read(process)
        *lines, self.said[number] = (self.said[number] + heard).split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "ready":
                self.done.add(rest)
                self.orders[number].discard(rest)
            else:
                self.reason = self.reason or f"a process that should have done so says: {rest}"
        if over and self.orders[number]:
            self.reason = self.reason or "a process that should have done so has ended"

    def close(self) -> None:
        """End all processes; what they have not done will not be."""
        self.dismissal()
        if any(self.orders):
            self.reason = self.reason or "the processes that should have done so were ended"
        for held in self.orders:
            held.clear()


def launched(threads: int) -> subprocess.Popen[bytes]:
    """A process that waits for an order. It has a session of its own, as Ctrl-C is for the learner alone."""
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": paths, "TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
    command = [sys.executable, "-m", MODULE, str(os.getpid())]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process


def dismiss(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes with all that they have started."""
    for process in processes:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # of an order that was not read any more
                pipe.close()


def _send(pipe: IO[bytes], order: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # it has ended, which shows elsewhere
        pipe.write(order)
        pipe.close()


def _read(process: subprocess.Popen[bytes]) -> tuple[bytes, bool]:
    """What there is to be read, and whether no more will come."""
    assert process.stdout is not None
    parts = []
    while True:
        try:
            parts.append(os.read(process.stdout.fileno(), 1 << 16))
        except BlockingIOError:
            return b"".join(parts), False
        if not parts[-1]:
            return b"".join(parts), True


def shares(regions: Regions, count: int) -> list[list[str]]:
    """Names for each of so many processes, so that all take about as long; the longest first."""
    found: list[list[str]] = [[] for _ in range(count)]
    taken = [0] * count
    for name, region in sorted(regions.items(), key=lambda item: -item[1].cost) if count else ():
        least = taken.index(min(taken))
        found[least].append(name)
        taken[least] += region.cost
    return found


def suited(config: Config, device: torch.device, own: bool) -> int:
    """How many processes are to compile for an agent, which may be of someone's own kind; 0 if it does so itself."""
    wanted, fast = config.run.compilers, config.run.fast
    if wanted is not None and wanted < 0:
        raise UserError(f"--run.compilers {wanted}: give 0 to compile first, or more")
    compiles = fast in ("compile", "shared") or (fast == "auto" and device.type == "cuda" and has_triton())
    if not compiles or config.agent.name != "dreamer":
        return 0
    if own or ranks.count() > 1:  # an agent of someone's own may do anything when it is made, so it is made once
        if wanted:
            LOG.warning("--run.compilers %d has no effect on %s", wanted, "your agent" if own else "several learners")
        return 0
    if wanted is not None:
        return wanted
    if device.type != "cuda" or marked(config, device) or (fast != "shared" and is_shared()):
        return 0
    cores = core_count() // 4 if fast == "shared" else core_count() - 1  # which others use as well
    return max(0, min(MOST, cores, int(free_memory() / 2 / MEMORY)))


def is_shared() -> bool:
    """Whether processes compute on a GPU at the same time (NVIDIA's MPS), which the filter's kernels cannot do."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")).exists()


def marked(config: Config, device: torch.device) -> bool:
    """Whether torch's cache has all functions of an agent already, or can have none."""
    from torch._inductor import config as settings  # torch's compiler, which takes as long to load as the rest of torch

    mark = mark_of(config, device)
    return mark is None or mark.exists() or settings.force_disable_caches or not settings.fx_graph_cache


def mark_of(config: Config, device: torch.device) -> Path | None:
    """The file that tells that torch's cache has all functions of an agent; it goes with the cache, if there is one."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    try:
        folder = Path(cache_dir())
    except OSError:
        return None
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    sections = (config.task, config.env, config.agent, config.world, config.behavior, config.optim, config.replay)
    shared = config.run.fast == "shared"
    about = (__version__, torch.__version__, name, shared, *sections, config.ppo, config.explore)
    return folder / "reverie" / hashlib.sha256(repr(about).encode()).hexdigest()


def room(agent: Dreamer, reserved: int) -> int:
    """How many processes find room on the agent's GPU, of which so many bytes are spoken for."""
    if agent.device.type != "cuda":
        return MOST
    return max(0, int((torch.cuda.mem_get_info(agent.device)[0] - reserved) * SHARE / taken(agent)))


def taken(agent: Dreamer) -> float:
    """About how many bytes a process takes on a GPU to let such an agent learn: rather more than less."""
    weights = sum(parameter.numel() for parameter in agent.parameters())
    return CONTEXT + ROWS * agent.replay.batch * agent.replay.length + WEIGHTS * weights
