"""A worker process as its parent sees it: started, asked, found dead, killed."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import select
import socket
import sys
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from ..config.errors import UserError, ending
from ..config.schema import EnvsConfig
from . import worker
from .memory import Plan, SharedBlock
from .slot import Factory, Past

CLOSING = 2.0
"""Seconds a worker has to close its environments before it is killed."""


class Lost(Exception):
    """A worker died or does not answer."""


class Crew:
    """One worker process as its parent sees it."""

    def __init__(self, number: int, factories: dict[int, Factory], seed: int, settings: EnvsConfig) -> None:
        self.number, self.factories, self.seed, self.settings = number, factories, seed, settings
        self.waiting = False
        self.pipe: Connection
        self.process: Any = None

    def launch(self, past: dict[int, Past]) -> None:
        """Start the process; it begins to build its environments at once."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([worker.__name__])
        orders = worker.Orders(self.number, self.factories, self.seed, self.settings, past, dict(os.environ))
        payload = cloudpickle.dumps(orders)
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=worker.serve, args=(other, payload), daemon=True)
        with without_main():
            self.process.start()
        other.close()
        self.poll = select.poll()
        self.poll.register(self.pipe.fileno(), select.POLLIN)
        self.waiting = True

    def send(self, message: bytes) -> None:
        """Give a command; that the worker is dead shows when it does not answer."""
        self.waiting = True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send_bytes(message)

    def share(self, plan: Plan, block: SharedBlock) -> None:
        """Hand the worker the shared memory."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send_bytes(pickle.dumps(plan))
            with socket.socket(fileno=os.dup(self.pipe.fileno())) as wire:
                socket.send_fds(wire, [b"m"], [block.file])

    def receive(self, progress: Callable[[], int] | None = None) -> tuple[Any, ...]:
        """The words of an answer; Lost if none comes in time although nothing moves on."""
        limit = self.settings.timeout
        moved, since = None, time.monotonic()
        while not self.poll.poll(min(1.0, limit / 4) * 1000):
            now = progress() if progress is not None else None
            if now != moved:
                moved, since = now, time.monotonic()
            elif time.monotonic() - since >= limit:
                raise Lost(f"its worker process did not answer within {limit:g} s")
        try:
            message = self.pipe.recv_bytes()
        except (EOFError, ConnectionResetError):
            raise Lost(f"its worker process {self.death()}") from None
        self.waiting = False
        return () if message == worker.QUIET else unpacked(pickle.loads(message))

    def death(self) -> str:
        """A phrase for how the process ended."""
        self.process.join(CLOSING)
        return ending(self.process.exitcode)

    def kill(self) -> None:
        """End the process now."""
        if self.process is not None and self.process.pid is not None:
            self.process.kill()
            self.process.join(CLOSING)
            if self.process.exitcode is not None:  # the system may take its time
                self.process.close()
            self.pipe.close()
            self.process = None


def dismiss(crews: list[Crew]) -> None:
    """End all workers: each may close its environments, and is killed if that takes long."""
    running = [crew for crew in crews if crew.process is not None]
    for crew in running:
        crew.pipe.close()
    limit = time.monotonic() + CLOSING
    for crew in running:
        crew.process.join(max(0.0, limit - time.monotonic()))
        crew.kill()


def unpacked(message: tuple[Any, ...]) -> tuple[Any, ...]:
    """The words of an answer, its warnings logged, its errors raised."""
    kind, words = message[0], message[1]
    if kind == "user_error":
        raise UserError(words)
    if kind == "bug":
        raise RuntimeError(f"an environment worker failed:\n{words}")
    for level, text in message[2]:
        logging.getLogger("reverie").log(level, text)
    return words


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Start processes that do not import the program again: it may bring torch, or lack an `if __name__` guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
