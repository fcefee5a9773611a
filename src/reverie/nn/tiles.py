"""Whether the matrix tiles (AMX) that a processor says it has can be used by torch."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress

LIMIT = "ONEDNN_MAX_CPU_ISA"
"""Where oneDNN, which multiplies in bfloat16 for torch, looks what it may use: once, at its first operation."""
WITHOUT_TILES = "AVX512_CORE_FP16"
CODE = bytes.fromhex("53 4989d0 89f8 89f1 0fa2 418900 41895804 41894808 4189500c 5b c3")
"""void (leaf, subleaf, registers): push rbx; mov r8, rdx; mov eax, edi; mov ecx, esi; cpuid; four stores; pop; ret."""
Registers = tuple[int, int, int, int]
Ask = Callable[[int, int], Registers]


def spare_hollow_tiles() -> None:
    """Have torch go without tiles where they are hollow, unless the user has set what it may use."""
    if LIMIT in os.environ or sys.platform != "linux" or platform.machine() != "x86_64":
        return
    with suppress(OSError):  # a system that lets nothing be written and run
        if hollow(_processor()):
            os.environ[LIMIT] = WITHOUT_TILES


def hollow(ask: Ask) -> bool:
    """Whether there are tile instructions, but no tiles: so on some virtual machines, where torch dies of them."""
    last = ask(0, 0)[0]
    if last < 0x7 or not ask(0x7, 0)[3] >> 24 & 1:
        return False
    if last < 0x1D or ask(0x1D, 0)[0] == 0:
        return True
    _, names, rows, _ = ask(0x1D, 1)
    return not (names >> 16 and rows & 0xFFFF)


def _processor() -> Ask:
    """What the processor answers to the instruction CPUID: eax, ebx, ecx and edx."""
    page = mmap.mmap(-1, len(CODE), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(CODE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    call = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(start)

    def ask(leaf: int, subleaf: int) -> Registers:
        registers = (ctypes.c_uint32 * 4)()
        call(leaf, subleaf, ctypes.addressof(registers))
        assert page  # kept as long as it is called
        return tuple(registers)

    return ask
