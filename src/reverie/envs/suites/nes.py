"""The NES emulator of the package nes_py, driven through its compiled library alone.

The package's Python code wants an older Gym and numpy; its library wants neither. Calls into the library let other
Python threads run, and every emulator keeps its whole state to itself, so a process may hold many of them.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache
from pathlib import Path

import numpy as np

from ...config.errors import UserError

A, B, SELECT, START, UP, DOWN, LEFT, RIGHT = (1 << bit for bit in range(8))
"""Buttons of the controller, to be added up."""

RAM_SIZE = 0x800
INSTALL = (
    "pip install --no-deps nes-py==8.2.1 gym-super-mario-bros==7.4.0, with a C++ compiler "
    "(in a checkout: make setup-suites, or pip install --no-deps -r requirements/mario.txt)"
)


def package_folder(name: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise UserError(f"the package {name} is not installed: {INSTALL}")
    return Path(spec.origin).parent


@cache
def library() -> ctypes.CDLL:
    """The compiled emulator with the types of its functions declared."""
    found = sorted(package_folder("nes_py").glob("lib_nes_env*"))
    if not found:
        raise UserError("nes_py lacks its compiled library: install a C++ compiler and then nes-py again")
    lib = ctypes.CDLL(str(found[0]))
    emulator, address = ctypes.c_void_p, ctypes.c_void_p
    for name, takes, gives in (
        ("Width", [], ctypes.c_int),
        ("Height", [], ctypes.c_int),
        ("Initialize", [ctypes.c_wchar_p], emulator),
        ("Controller", [emulator, ctypes.c_int], address),
        ("Screen", [emulator], address),
        ("Memory", [emulator], address),
        ("Reset", [emulator], None),
        ("Step", [emulator], None),
        ("Backup", [emulator], None),
        ("Restore", [emulator], None),
        ("Close", [emulator], None),
    ):
        function = getattr(lib, name)
        function.argtypes, function.restype = takes, gives
    return lib


class Emulator:
    """One console with a cartridge in it."""

    def __init__(self, rom: Path) -> None:
        if not rom.is_file():
            raise UserError(f"there is no ROM at {rom}: install its package again")
        self.library = lib = library()
        # The library narrows each wide character to one byte, so the bytes of the path are handed over one by one.
        self.handle: int | None = lib.Initialize(os.fsencode(rom).decode("latin-1"))
        self.ram = (ctypes.c_ubyte * RAM_SIZE).from_address(lib.Memory(self.handle))
        self.pad = ctypes.c_ubyte.from_address(lib.Controller(self.handle, 0))
        shape = (lib.Height(), lib.Width(), 4)
        pixels = (ctypes.c_ubyte * (shape[0] * shape[1] * shape[2])).from_address(lib.Screen(self.handle))
        self.pixels = np.ctypeslib.as_array(pixels).reshape(shape)
        lib.Reset(self.handle)

    def frame(self, buttons: int = 0) -> None:
        """Play one frame with these buttons held."""
        self.pad.value = buttons
        self.library.Step(self.handle)

    def screen(self) -> np.ndarray:
        """A copy of the screen, uint8 (240, 256, 3) in red, green, blue."""
        screen = np.empty((*self.pixels.shape[:2], 3), np.uint8)
        for channel in range(3):  # the library keeps blue, green, red and an empty byte; one copy of all is slower
            screen[..., channel] = self.pixels[..., 2 - channel]
        return screen

    def number(self, address: int, digits: int) -> int:
        """A number that the game keeps in memory one decimal digit a byte."""
        return sum(digit * 10**place for place, digit in enumerate(reversed(self.ram[address : address + digits])))

    def backup(self) -> None:
        """Remember the state; there is one place to remember it."""
        self.library.Backup(self.handle)

    def restore(self) -> None:
        """Go back to the remembered state."""
        self.library.Restore(self.handle)

    def close(self) -> None:
        """Free the console; its memory is not to be read any more."""
        if self.handle is not None:
            handle, self.handle = self.handle, None
            del self.ram, self.pad, self.pixels
            self.library.Close(handle)

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self.close()
