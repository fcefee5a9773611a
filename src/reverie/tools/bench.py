"""Measuring: how long a call takes, what it computes, how much memory it needs, and what the device could do."""

from __future__ import annotations

import logging
import platform
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from ..nn.graph import WARMUP

LOG = logging.getLogger("reverie")

Function = Callable[[], Any]

CALIBRATION = 0.25
"""The part of a repeat's time that a trial must take before the number of its calls is trusted."""

PRODUCTS: dict[str, tuple[int, torch.dtype]] = {"cuda": (8192, torch.bfloat16), "cpu": (1024, torch.float32)}
"""Size and type of the matrix product that shows what a device can do."""


@dataclass(frozen=True)
class Timing:
    """What was measured of a function."""

    seconds: tuple[float, ...]
    """Seconds of one call, in each repeat."""
    calls: int
    """All calls, those that found out how many a repeat takes among them."""

    @property
    def median(self) -> float:
        """Seconds of one call in the middle one of the repeats."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """How far the slowest and the fastest repeat lie apart, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def rate(self) -> float:
        """Calls in a second."""
        return 1 / self.median

    @property
    def milliseconds(self) -> float:
        """Milliseconds of one call."""
        return 1000 * self.median


class Stopwatch:
    """Times functions on a device: repeats of as many calls as fill the seconds, each repeat waited for at its end."""

    def __init__(
        self,
        device: torch.device,
        repeats: int = 5,
        seconds: float = 5.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.device, self.repeats, self.seconds, self.clock = device, repeats, seconds, clock

    def shorter(self, share: float) -> Stopwatch:
        """One that measures for a part of the time."""
        return Stopwatch(self.device, self.repeats, self.seconds * share, self.clock)

    def block(self, function: Function, calls: int) -> float:
        """The seconds that so many calls take, until the device has done them."""
        synchronize(self.device)
        start = self.clock()
        for _ in range(calls):
            function()
        synchronize(self.device)
        return self.clock() - start

    def measure(self, function: Function) -> Timing:
        """Seconds of one call of a function that is warm, in each repeat; of one that takes too long just one."""
        share = self.seconds / self.repeats
        calls, spent = 1, self.block(function, 1)
        if spent >= self.seconds:
            return Timing((spent,), calls)
        made = calls
        while spent < CALIBRATION * share:
            calls *= 2
            spent = self.block(function, calls)
            made += calls
        calls = max(1, round(calls * share / spent))
        seconds = tuple(self.block(function, calls) / calls for _ in range(self.repeats))
        return Timing(seconds, made + calls * self.repeats)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def captured(name: str, function: Function, generators: Sequence[torch.Generator]) -> Function:
    """The function as a GPU graph of its own; the function itself, with a warning, where it cannot be captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    try:
        with torch.cuda.graph(graph, stream=stream):
            function()
    except RuntimeError as error:
        LOG.warning("%s is timed without a GPU graph: %s", name, error)
        return function
    return graph.replay


def forget_peak(device: torch.device) -> None:
    """Let the peak of the device's memory begin anew; that of a process cannot."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """The most memory that tensors took on a GPU, or that this process took on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def flops_of(function: Function) -> int:
    """Multiplications and additions in the matrix products and convolutions of one call, backward passes included."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def product_rate(watch: Stopwatch) -> float:
    """The operations a second that the device does in a large matrix product."""
    size, kind = PRODUCTS[watch.device.type]
    left, right, out = (torch.randn(size, size, dtype=kind, device=watch.device) for _ in range(3))

    def product() -> None:
        torch.mm(left, right, out=out)

    watch.block(product, WARMUP)
    return 2 * size**3 / watch.measure(product).median


def device_name(device: torch.device) -> str:
    """What the device is called."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
