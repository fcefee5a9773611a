"""The kernels of scan.cu, compiled and started."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import torch
from torch import Tensor

from ..rssm import State
from .nvrtc import Module, kept
from .shape import Shape

SOURCE = Path(__file__).with_name("scan.cu")
THREADS, COUNTERS, LINE, SPLIT = 256, 32, 32, 8
FLOAT, HALF = torch.float32, torch.bfloat16
Found = dict[str, Tensor]
"""Values of all steps by the name they have in the kernels."""


def fields(name: str) -> list[str]:
    """The names in the struct that a kernel takes, in order."""
    text = re.sub(r"//.*", "", SOURCE.with_name(f"{name}.cuh").read_text())
    found = re.search(rf"struct {name.capitalize()} \{{(.*?)\}};", text, re.DOTALL)
    assert found is not None
    return [part.split("*")[-1].split()[-1] for part in found[1].split(";") if part.strip()]


def definitions(shape: Shape, trapping: bool, timed: bool = False) -> list[str]:
    """What scan.cu is compiled with; `trapping` ends the program where a thread block waits in vain.

    If `timed`, every wait writes down how it went.
    """
    values = {
        "DETER": shape.deter, "HIDDEN": shape.hidden, "BLOCKS": shape.blocks, "GROUPS": shape.groups,
        "CLASSES": shape.classes, "UNIMIX": f"{shape.unimix:.9g}f", "TRAPPING": int(trapping),
        "COLUMNS": shape.tile, "NUM_COUNTERS": COUNTERS, "NUM_SPLIT": SPLIT, "AHEAD": shape.ahead,
        "LASTING": shape.lasting, "TIMED": int(timed),
    }  # fmt: skip
    for name in ("forward", "reverse"):
        counts = {"SHARED": shape.shared[name], "SLOTS": shape.slots[name], "ALL_CELLS": shape.cells[name]}
        values |= {f"{what}_{name.upper()}": count for what, count in counts.items()}
    return [f"-D{name}={value}" for name, value in values.items()]


class Program:
    """Both kernels, for one shape on one device."""

    def __init__(self, shape: Shape, device: torch.device, trapping: bool = True, timed: int = 0) -> None:
        """`timed`: of how many steps each wait is to be written down."""
        self.shape, self.device = shape, device
        self.fields = {name: fields(name) for name in ("forward", "reverse")}
        size = LINE + (timed + 1) * shape.ctas * COUNTERS * 2 if timed else 1
        self.fault = torch.zeros(size, dtype=torch.int32, device=device)
        """Without `trapping`: the last wait in vain, as counter + 1 and, from bit 8, step. Behind it, from LINE on,
        where waits are timed: cycles when each began and ended, by step + 1, thread block and counter."""
        self.compile(trapping, timed > 0)

    def compile(self, trapping: bool, timed: bool = False) -> None:
        """Make both kernels ready to start; a RuntimeError says why the device cannot run them."""
        major, minor = torch.cuda.get_device_capability(self.device)
        if major < 8:
            raise RuntimeError("it needs a GPU that multiplies in bfloat16")
        options = [f"--gpu-architecture=sm_{major}{minor}", "--std=c++17", *definitions(self.shape, trapping, timed)]
        code = kept(SOURCE, options)
        with torch.cuda.device(self.device):
            self.module = Module(code)
            wanted, room = max(self.shape.shared.values()), self.module.room()
            if wanted > room:
                raise RuntimeError(f"it needs {wanted} bytes of shared memory in a thread block, the GPU has {room}")
            self.kernels = {name: self.module.function(f"{name}_scan", n) for name, n in self.shape.shared.items()}
            for name, kernel in self.kernels.items():
                most = self.module.resident(kernel, THREADS, self.shape.shared[name])
                if most < self.shape.ctas:
                    raise RuntimeError(f"it needs {self.shape.ctas} thread blocks at once, the GPU holds {most}")
            if self.shape.streamed:
                self.packers = {name: self.module.function(f"{name}_pack", 0) for name in self.kernels}

    def pack(self, name: str, argument: ctypes.Array) -> None:
        """Bring the weights into the order in which a kernel takes them, on the current stream."""
        self.module.launch(self.packers[name], self.shape.ctas * SPLIT, THREADS, 0, argument, together=False)

    def start(self, name: str, argument: ctypes.Array) -> None:
        """Run a kernel on the current stream."""
        self.module.launch(self.kernels[name], self.shape.ctas, THREADS, self.shape.shared[name], argument)

    def empty(self, *size: int, kind: torch.dtype = FLOAT) -> Tensor:
        """Room for results."""
        return torch.empty(size, dtype=kind, device=self.device)

    def call(self, name: str, tensors: Found, steps: int) -> None:
        """Run a kernel with those arguments; its counters are zeroed on the same stream."""
        counters = torch.zeros(COUNTERS * LINE, dtype=torch.int32, device=self.device)
        packed = self.empty(self.shape.packed[name], kind=HALF)
        given = tensors | {"counters": counters, "fault": self.fault, "packed": packed}
        words = []
        for field in self.fields[name]:
            if field == "steps":
                words.append(steps)
                continue
            tensor = given[field]
            assert tensor.is_contiguous() and tensor.device == self.device, field
            assert tensor.data_ptr() % 16 == 0 or field == "first", field
            words.append(tensor.data_ptr())
        argument = (ctypes.c_uint64 * len(words))(*words)
        if self.shape.streamed:
            self.pack(name, argument)
        self.start(name, argument)

    def forward(
        self, weights: Found, start: State, first: Tensor, acted: Tensor, embedded: Tensor, noise: Tensor
    ) -> Found:
        """All that the kernel finds, by name, for inputs (T, B, ...); `deters` and `stochs` begin with the start."""
        s, e, (steps, batch) = self.shape, self.empty, first.shape
        deters, stochs = e(steps + 1, batch, s.deter), e(steps + 1, batch, s.latent)
        found = {
            "deters": deters, "stochs": stochs, "start": deters[0], "deter": deters[1:], "stoch": stochs[1:],
            "params": e(steps, batch, s.groups, s.classes),
            "half": e(steps + 1, batch, s.deter, kind=HALF), "drawn": e(steps + 1, batch, s.latent, kind=HALF),
            "parts": e(steps + 1, s.parts, batch, 2 * s.hidden), "summary": e(steps + 1, batch, s.hidden),
            "latent": e(steps + 1, batch, s.hidden), "mixed": e(steps, batch, s.deter, kind=HALF),
            "power": e(steps, batch, s.ctas), "scale": e(steps, batch),
            "gates": e(steps, batch, s.blocks, 3 * s.block, kind=HALF), "seen": e(steps, batch, s.hidden),
        }  # fmt: skip
        for name, value in (("deters", start.deter), ("half", start.deter)):
            found[name][0].copy_(value)
        for name, value in (("stochs", start.stoch), ("drawn", start.stoch)):
            found[name][0].copy_(value)
        given = {"first": first.view(torch.uint8), "acted": acted, "embedded": embedded, "noise": noise}
        self.call("forward", weights | found | given, steps)
        return found

    def reverse(self, weights: Found, found: Found, first: Tensor, goals: tuple[Tensor, Tensor, Tensor]) -> Found:
        """Total gradients of states and all that leads to them, from what `forward` found and the losses' gradients.

        `goals` (T, B, ...) are those of deterministic states, latents and their parameters.
        """
        s, e, (steps, batch) = self.shape, self.empty, first.shape
        grads = {
            "total_deter": e(steps, batch, s.deter), "total_stoch": e(steps, batch, s.latent),
            "d_logits": e(steps, batch, s.latent, kind=HALF), "d_inferred": e(steps, batch, s.hidden),
            "d_summary": e(steps, batch, s.hidden, kind=HALF),
            "d_gates": e(steps, batch, s.blocks, 3 * s.block, kind=HALF), "tilted": e(steps, batch, s.deter, kind=HALF),
            "lean": e(steps, batch, s.ctas), "d_shared": e(steps, s.parts, batch, 2 * s.hidden),
        }  # fmt: skip
        given = {"first": first.view(torch.uint8), **dict(zip(("by_deter", "by_stoch", "by_params"), goals))}
        self.call("reverse", weights | found | grads | given, steps)
        return grads


def times_of(program: Program, steps: int) -> Tensor:
    """When the waits of a timed run began and ended in cycles (1 + T, CTAs, counters, 2): from step -1 on; 0: never."""
    return program.fault[LINE:].view(steps + 1, program.shape.ctas, COUNTERS, 2)
