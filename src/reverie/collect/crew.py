"""A generator process as the learner sees it: started, given leave, heard, found dead, ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import torch

from ..config.errors import UserError
from ..data.episodes import EpisodeStore
from ..envs.crew import CLOSING, Lost
from ..envs.memory import SharedBlock
from .collector import Collector
from .generator import FILL, Orders, Report, SlotsPlan
from .nursery import BROKEN, Nursery
from .weights import WeightsPlan

Make = Callable[[int, int, int], Collector]
"""Builds the collector of a generator from its number, how many environments it has, and which of its lives this is."""


class Crew:
    """One generator and the rows it hands over: those of the environments from `first` on."""

    def __init__(self, number: int, first: int, plan: SlotsPlan, make: Make, nursery: Nursery) -> None:
        self.number, self.first, self.plan, self.make, self.nursery = number, first, plan, make, nursery
        self.block = SharedBlock(plan.size())
        self.slots = plan.slots(self.block.map)
        self.lives = 0
        self.deaths = 0
        """In a row, without a slot filled between them."""
        self.fresh = False
        """Whether the next rows are the first of one that took another's place."""
        self.store: Callable[[], EpisodeStore] | None = None
        self.process = 0
        self.pipe: Connection
        self.reports: deque[Report] = deque()
        self.taken = 0
        self.since = 0.0
        self.slowest = 0.0

    @property
    def envs(self) -> range:
        """The numbers of its environments."""
        return range(self.first, self.first + self.plan.envs)

    def launch(self, plan: WeightsPlan, weights: SharedBlock) -> None:
        """Start the process and give it leave to fill all slots."""
        make = partial(self.make, self.number, self.plan.envs, self.lives)
        self.pipe, other = multiprocessing.Pipe()
        with other:
            files = [other.fileno(), self.block.file, weights.file]
            self.process = self.nursery.launch(Orders(self.number, make, self.plan, plan, self.store), files)
        self.lives += 1
        self.taken = 0
        self.since = time.monotonic()
        for _ in range(self.plan.depth):
            self.allow()

    def allow(self) -> None:
        """Give leave to fill one more slot; that the generator is dead shows when it does not report."""
        with contextlib.suppress(*BROKEN):
            self.pipe.send_bytes(FILL)

    def hear(self) -> None:
        """Take what the generator has sent; Lost if it has died."""
        try:
            kind, words, *_ = pickle.loads(self.pipe.recv_bytes())
        except BROKEN:
            raise Lost from None
        if kind == "user_error":
            raise UserError(words)
        if kind == "bug":
            raise RuntimeError(f"generator {self.number} failed:\n{words}")
        self.reports.append(words)
        self.deaths = 0
        self.slowest = max(self.slowest, words.worked)
        self.since = time.monotonic()

    def rows(self) -> dict[str, torch.Tensor]:
        """The rows of the report that is next; they stay until leave is given to fill their slot anew."""
        self.taken += 1
        return self.slots[(self.taken - 1) % self.plan.depth]

    def end(self, patience: float) -> str:
        """How the process ended: by itself within so many seconds, or killed after them."""
        self.pipe.close()
        how = self.nursery.end(self.process, patience)
        self.process = 0
        return how


def dismiss(crews: list[Crew], nursery: Nursery) -> None:
    """End all generators: each may close its environments, and is killed if that takes long."""
    running = [crew for crew in crews if crew.process]
    for crew in running:
        crew.pipe.close()
    limit = time.monotonic() + CLOSING
    for crew in running:
        crew.end(max(0.0, limit - time.monotonic()))
    nursery.close()
