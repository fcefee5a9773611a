"""The machine that runs programs of layers on a CPU, compiled from C when it is first asked for, and then kept."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MethodType

FLAGS = "-O2 -ftree-vectorize -fvect-cost-model=dynamic -march=native -fopenmp-simd -fno-math-errno -fno-trapping-math"
"""For the machine at hand; nothing that lets a compiler forget about numbers that are not finite."""
HERE = Path(__file__).parent


class Unfit(Exception):
    """Why something cannot run on the machine, in a line."""


class NoCompiler(Unfit):
    """Why nothing can: what is written in C cannot be compiled."""


def ours(thing: object, *kinds: type) -> None:
    """Refuse what is of another kind: a class built upon one of these may do other things than the programs know."""
    if type(thing) not in kinds:
        raise Unfit(f"there is no program for {type(thing).__name__}")


def plainly(owner: object, name: str) -> MethodType:
    """The method of that name as its class has it, which a copy of what owns it gets in the place of a program."""
    return MethodType(getattr(type(owner), name), owner)


class Op(ctypes.Structure):
    """One operation, as machine.c has it."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("kind", "from_", "until", "a", "b", "c", "d", "e", "f")),
        *((name, ctypes.c_long) for name in ("k", "n", "groups", "in_step", "out_step", "add", "source_step")),
        *((name, ctypes.c_long) for name in ("k_stride", "n_stride", "row_stride", "step_stride")),
        *((name, ctypes.c_float) for name in ("eps", "low", "high")),
        *((name, ctypes.c_long) for name in ("center", "active", "half")),
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "packed", "data", "by_weight", "by_bias")),
        ("share", ctypes.c_long),
        ("sizes", ctypes.c_void_p),
    ]


class Manner(ctypes.Structure):
    """How a program runs, as machine.c has it."""

    _fields_ = [(name, ctypes.c_long) for name in ("width", "steps", "backwards", "most")]


class Task(ctypes.Structure):
    """A program to be run, as machine.c has it."""

    _fields_ = [("ops", ctypes.c_void_p), ("count", ctypes.c_long), ("how", Manner)]


@cache
def machine() -> ctypes.CDLL:
    """The compiled machine; `NoCompiler` where there is none or it fails."""
    try:
        found = _library(shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""])
    except (OSError, ValueError) as error:  # of files, or of words in CC
        raise NoCompiler(str(error)) from error
    found.prepare.argtypes = [ctypes.c_void_p, ctypes.c_long]
    found.descend.argtypes = [ctypes.c_void_p]
    found.epoch.argtypes = [ctypes.c_void_p, ctypes.c_long, Manner, ctypes.c_void_p]
    found.collect.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    found.join.argtypes = [ctypes.c_void_p]
    return found


def _library(compiler: list[str]) -> ctypes.CDLL:
    """The library as an earlier process has kept it, or compiled now and kept for those to come."""
    if not compiler[0]:
        raise NoCompiler("there is no C compiler: install gcc or clang")
    kept = place() / f"machine-{_fingerprint(compiler)}.so"
    with suppress(OSError):  # it is not there, or not whole
        return ctypes.CDLL(str(kept))
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder:
        path = _compiled(compiler, Path(folder) / "machine.so")
        with suppress(OSError):  # nothing can be kept here
            kept.parent.mkdir(parents=True, exist_ok=True)
            os.replace(shutil.copyfile(path, f"{kept}.{os.getpid()}"), kept)
        return ctypes.CDLL(str(path))


def place() -> Path:
    """Where libraries are kept."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reverie"
    except RuntimeError:  # a user without a home
        return Path(os.devnull)


def _fingerprint(compiler: list[str]) -> str:
    """What another library would come of, if it were another: the source, the compiler, the processor."""
    parts = [path.read_bytes() for path in sorted(HERE.glob("*.[ch]"))]
    parts += [word.encode() for word in (FLAGS, *compiler)]
    found = shutil.which(compiler[0])
    if found:
        told = os.stat(found)
        parts.append(f"{told.st_size} {told.st_mtime_ns}".encode())
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
        parts += sorted({line for line in lines if line.startswith((b"model name", b"flags", b"Features"))})
    return sha256(b"\0".join(parts)).hexdigest()[:16]


def _compiled(compiler: list[str], path: Path) -> Path:
    words = [*compiler, *FLAGS.split(), "-std=gnu11", "-shared", "-fPIC", str(HERE / "machine.c"), "-o", str(path)]
    done = subprocess.run([*words, "-lm"], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"{compiler[0]} failed"]
        raise NoCompiler(next((line for line in lines if "error" in line), lines[0]))
    return path
