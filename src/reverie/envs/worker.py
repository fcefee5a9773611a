"""The process that runs some of the environments of a ProcessVector. It never imports torch.

Its commands are messages of one byte (step, and into which of the two frames) or pickled tuples; it answers each with a
pickled tuple. Everything large goes through shared memory.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import multiprocessing
import os
import pickle
import random
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ..config.errors import UserError
from ..config.schema import EnvsConfig
from . import registry  # noqa: F401 (the fork server preloads this module, and with it what environments need)
from .memory import Memory, Plan
from .slot import Factory, Past, Slot, Step

GRACE = 2.0
"""Seconds to close environments once the parent is gone."""

QUIET = b"."
"""The answer to a step with nothing to tell."""


@dataclass
class Orders:
    """What a worker is told when it starts."""

    number: int
    factories: dict[int, Factory]
    seed: int
    settings: EnvsConfig
    past: dict[int, Past]
    environ: dict[str, str]


def serve(pipe: Connection, orders: bytes) -> None:
    """Run environments until the parent closes the pipe or is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the whole group; the parent decides what they mean
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    slots: dict[int, Slot] = {}
    try:
        with reporting(pipe):
            Worker(pipe, pickle.loads(orders), slots).serve()
    finally:
        for slot in slots.values():
            slot.close()


@contextlib.contextmanager
def reporting(pipe: Connection) -> Iterator[None]:
    """Work whose errors the parent is told of, unless it has gone."""
    try:
        yield
    except UserError as error:
        answer(pipe, "user_error", str(error))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception:
        answer(pipe, "bug", traceback.format_exc())


def end_with_parent() -> None:
    """Wait for the parent's end and follow it, even out of an environment that hangs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        time.sleep(GRACE)
        os._exit(0)


def answer(pipe: Connection, *words: Any) -> None:
    """Send a message unless nobody listens any more."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.send_bytes(pickle.dumps(words))


def collect_warnings() -> list[tuple[int, str]]:
    """A list that fills with what the library logs in this process, for the parent to log."""
    news: list[tuple[int, str]] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            news.append((record.levelno, record.getMessage()))

    logger = logging.getLogger("reverie")
    logger.handlers = [Collector()]
    logger.propagate = False
    return news


class Worker:
    """The slots of one process and its end of the pipe."""

    def __init__(self, pipe: Connection, orders: Orders, slots: dict[int, Slot]) -> None:
        os.environ.update(orders.environ)  # the fork server's are from when it started
        random.seed(orders.seed + orders.number)  # a fork would share the state of these with its siblings
        np.random.seed((orders.seed + orders.number) % 2**32)  # noqa: NPY002
        self.pipe, self.number, self.slots = pipe, orders.number, slots
        self.news = collect_warnings()
        for index, factory in orders.factories.items():
            past = orders.past.get(index, Past())
            self.slots[index] = Slot(factory, index, orders.seed, orders.settings, past)
            first = self.slots[index]
            self.reply(index, first.observation_space, first.action_space, self.render_mode(first))
        self.memory = self.share()
        self.commands: dict[str, Callable[..., Any]] = {
            "reset": lambda side, seed: self.fill(side, lambda slot: slot.reset(seed)),
            "restore": lambda side, saved: self.fill(side, lambda slot: slot.restore(saved[slot.index])),
            "state": lambda: {index: slot.state() for index, slot in self.slots.items()},
            "render": lambda count: {index: slot.render() for index, slot in self.slots.items() if index < count},
        }

    def render_mode(self, slot: Slot) -> str | None:
        """How a slot's environment shows itself."""
        return slot.env.render_mode if slot.env is not None else None

    def share(self) -> Memory:
        """The memory the parent shares, received as a file descriptor over the pipe's socket."""
        plan: Plan = pickle.loads(self.pipe.recv_bytes())
        with socket.socket(fileno=os.dup(self.pipe.fileno())) as wire:
            _, (file,), _, _ = socket.recv_fds(wire, 1, 1)
        block = mmap.mmap(file, plan.size())
        os.close(file)
        return Memory(plan, block)

    def serve(self) -> None:
        """Answer commands until the pipe closes."""
        while True:
            message = self.pipe.recv_bytes()
            if len(message) == 1:
                self.step(message[0])
                continue
            name, *arguments = pickle.loads(message)
            self.reply(self.commands[name](*arguments))

    def step(self, side: int) -> None:
        """Step all slots into one of the two frames and tell what has to be told."""
        actions = self.memory.action
        summaries = self.fill(side, lambda slot: slot.step(actions[slot.index]))
        if summaries or self.news:
            self.reply(summaries)
        else:
            self.pipe.send_bytes(QUIET)

    def fill(self, side: int, play: Callable[[Slot], Step]) -> dict[int, dict[str, float]]:
        """Write what each slot shows after `play` into a frame; summaries of finished episodes come back."""
        frame, memory, summaries = self.memory.frames[side], self.memory, {}
        for index, slot in self.slots.items():
            memory.busy[self.number] = index  # whom to blame if this process dies now
            step = play(slot)
            frame.put(index, step)
            memory.episode[index] = slot.episode
            if step.summary:
                summaries[index] = step.summary
        memory.busy[self.number] = -1
        return summaries

    def reply(self, *words: Any) -> None:
        """Send an answer together with the warnings since the last one."""
        self.pipe.send_bytes(pickle.dumps(("done", words, self.news[:])))
        self.news.clear()
