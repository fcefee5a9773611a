"""Where generators come from: a process that has loaded all they need and forks them, each in a fraction of a second.

A generator that starts from nothing loads torch for seconds. The standard library's fork server would do as well, but a
program has only one, and environment workers have that, which are to start without torch.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import torch

from ..config.errors import UserError, ending
from ..envs.crew import CLOSING, without_main

NICENESS = 5
"""How much generators yield to the learner, for whom alone there is no stand-in."""
POLL = 0.01
"""Seconds between two looks whether a process has ended."""
BROKEN = (EOFError, BrokenPipeError, ConnectionResetError)
"""How it shows that the other end of a pipe is gone."""
ATTEMPTS, PAUSE = 4, 0.5
"""How often the process that forks is started for one generator, and seconds between, more each time."""
FILES = 4
"""Files that a generator is given: its end of a pipe, its slots, the weights, where it prints."""

Serve = Callable[[Connection, Any, list[int]], None]
"""What a generator does with its pipe, its orders and the other files."""


class Nursery:
    """Starts and ends generators. A new process takes the place of the one that forks if that is lost."""

    def __init__(self, serve: Serve, preload: Any) -> None:
        self.preload = cloudpickle.dumps((serve, preload))
        self.process: Any = None
        self.pipe: Connection

    def launch(self, orders: Any, files: list[int]) -> int:
        """The number of a new process, which has got the orders and the files."""
        message = cloudpickle.dumps(orders)
        for attempt in range(ATTEMPTS):
            time.sleep(PAUSE * attempt)
            try:
                return self._asked_to_fork(message, files)
            except BROKEN:
                self.close()
        raise UserError(
            f"the process that starts generators was lost {ATTEMPTS} times in a row: look for what ends it, such as "
            "memory that runs out, or use --collect.mode inline"
        )

    def _asked_to_fork(self, message: bytes, files: list[int]) -> int:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=nurse, args=(other, self.preload), daemon=True)
            with without_main():
                self.process.start()
            other.close()
        self.pipe.send(("launch", message))
        with socket.socket(fileno=os.dup(self.pipe.fileno())) as wire:
            socket.send_fds(wire, [b"f"], files)
        return self.pipe.recv()

    def end(self, number: int, patience: float = 1.0) -> str:
        """How a process of ours ended: by itself within so many seconds, or killed after them."""
        if self.process is not None:
            try:
                self.pipe.send(("end", number, patience))
                return ending(self.pipe.recv())
            except BROKEN:
                self.close()
        return ending(ended(number, patience))

    def close(self) -> None:
        """End the process that forks; those that it has forked end when their own pipes are closed."""
        if self.process is not None:
            self.pipe.close()
            self.process.join(CLOSING)
            self.process.kill()
            self.process.join()
            self.process.close()
            self.process = None


def nurse(pipe: Connection, preload: bytes) -> None:
    """Fork processes until the learner closes the pipe or is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the whole group; the learner decides what they mean
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    torch.set_num_threads(1)  # more would not survive a fork
    serve, _ = pickle.loads(preload)
    while True:
        try:
            word, *rest = pipe.recv()
            pipe.send(forked(pipe, serve, *rest) if word == "launch" else ended(*rest))
        except BROKEN:
            return


def forked(pipe: Connection, serve: Serve, orders: bytes) -> int:
    """The number of a new process, which serves and then ends."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as wire:
        _, files, _, _ = socket.recv_fds(wire, 1, FILES)
    number = os.fork()
    if number:
        for file in files:
            os.close(file)
        return number
    try:
        pipe.close()
        serve(Connection(files[0]), pickle.loads(orders), files[1:])
        os._exit(0)
    finally:
        os._exit(1)


def ended(number: int, patience: float) -> int | None:
    """The status a process ended with, negative if a signal killed it; after so many seconds we kill it.

    None for one that a nursery has forked which is lost: it is no child of ours, and so its status is not to be had.
    """
    limit = time.monotonic() + patience
    try:
        while True:
            found, status = os.waitpid(number, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= limit:
                os.kill(number, signal.SIGKILL)
                return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
            time.sleep(POLL)
    except ChildProcessError:
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < limit:
                os.kill(number, 0)  # raises once it is gone
                time.sleep(POLL)
            os.kill(number, signal.SIGKILL)
        return None
