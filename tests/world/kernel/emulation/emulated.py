"""The kernels on a CPU, played by emulate.cpp."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from reverie.world.kernel.program import SOURCE, Program, definitions
from reverie.world.kernel.shape import Shape

PLAYER = Path(__file__).with_name("emulate.cpp")


def require_compiler() -> None:
    """Skips a test where the kernels cannot be compiled for this CPU, fails it in CI."""
    if platform.machine() != "x86_64" or shutil.which("g++") is None:
        report = pytest.fail if os.environ.get("CI") else pytest.skip
        report("playing the GPU needs g++ and an x86-64 CPU")


class Poisoned(Program):
    """Every place holds NaN until it is written, so that what is read too early shows."""

    def empty(self, *size: int, kind: torch.dtype = torch.float32) -> Tensor:
        """Room for results."""
        return super().empty(*size, kind=kind).fill_(float("nan"))


class Emulated(Poisoned):
    """Runs thread blocks one after the other, in an order that `seed` shuffles (0 does not)."""

    seed = 0

    def __init__(self, shape: Shape, folder: Path, timed: int = 0) -> None:
        self.folder = folder
        super().__init__(shape, torch.device("cpu"), trapping=False, timed=timed)

    def compile(self, trapping: bool, timed: bool = False) -> None:
        """Make both kernels ready to start."""
        path = self.folder / f"emulated{self.shape.deter}_{self.shape.tile}_{int(timed)}.so"
        command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{SOURCE.parent}", "-o", str(path)]
        subprocess.run([*command, *definitions(self.shape, trapping, timed), str(PLAYER)], check=True)
        self.library = ctypes.CDLL(str(path))

    def pack(self, name: str, argument: ctypes.Array) -> None:
        """Bring the weights into order."""
        self.start(f"{name}_pack", argument)

    def start(self, name: str, argument: ctypes.Array) -> None:
        """Run a kernel."""
        if getattr(self.library, f"emulate_{name}")(argument, ctypes.c_uint(self.seed)):
            raise RuntimeError(f"{name}: no thread can go on")
