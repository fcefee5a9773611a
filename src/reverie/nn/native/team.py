"""Threads that share the rows of a task: torch's own where it has them by OpenMP, so that none wait for one another."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

import torch

from .machine import machine


class Team(ctypes.Structure):
    """Who works at what, as teams.h has it."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("work", "task")),
        *((name, ctypes.c_long) for name in ("rows", "share", "next", "failed")),
    ]


SHARES = 4
"""For each thread: on a CPU that others use, threads are not equally fast."""
PROCESS = os.getpid()
"""The process that has loaded this; one that was forked from it has none of its threads."""


def shares_of(rows: int, least: int) -> int:
    """In how many shares threads work at so many rows, of at least so many each."""
    threads = torch.get_num_threads()
    return max(1, min(SHARES * threads, rows // least)) if threads > 1 else 1


def share_out(work: str, task: ctypes.Structure, rows: int, shares: int) -> None:
    """Let threads work at so many shares of the rows of a task, by the machine's function of that name.

    Which thread takes which share is chance, but what a share comes to is not.
    """
    function = ctypes.cast(getattr(machine(), work), ctypes.c_void_p).value
    team = Team(function, ctypes.addressof(task), rows, -(-rows // shares))
    threads = torch.get_num_threads()
    if min(shares, threads) == 1:
        machine().join(ctypes.byref(team))
    elif (parallel := openmp()) is not None and os.getpid() == PROCESS:
        # all of them, though some may find nothing to do: OpenMP ends those that are not asked, and torch starts others
        parallel(ctypes.cast(machine().join, ctypes.c_void_p), ctypes.byref(team), threads, 0)
    else:
        with_pool(team, min(shares, threads))
    if team.failed:
        raise MemoryError("no memory for a program of layers")


@cache
def openmp() -> Callable[..., None] | None:
    """What lets torch's own threads call a function, if GNU's OpenMP has made them.

    Those of a pool would have to wait for torch's, which stay awake for a while after each of its operations.
    """
    try:
        parallel = ctypes.CDLL(None).GOMP_parallel
    except AttributeError:
        return None
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel


def with_pool(team: Team, threads: int) -> None:
    """Let threads of our own join a team."""
    others = [pool(threads - 1, os.getpid()).submit(machine().join, ctypes.byref(team)) for _ in range(threads - 1)]
    try:
        machine().join(ctypes.byref(team))
    finally:  # they work with what an interruption would let go
        wait(others)


@cache
def pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Threads that run C beside Python, in a process."""
    return ThreadPoolExecutor(workers)
