"""A generator: a process with environments and a copy of the agent of its own, which collects until it is told to end.

It takes one byte for each slot of the shared memory that it may fill, and answers with a report once it has. Rows and
weights never travel through the pipe.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from ..agents.base import Agent
from ..data.episodes import EpisodeStore
from ..data.rows import Batch
from ..envs.worker import collect_warnings, end_with_parent, reporting
from .collector import Chunk, Collector
from .gathering import Lot, Report
from .shared import bytes_of, tensors_over, with_lead
from .weights import Seldom, Weights, WeightsPlan

FILL = b"\x00"
"""The order to fill the next slot."""
NEVER = -1
"""The version of weights that were never fetched."""
LOADING = 0.05
"""The share of a generator's time that fetching weights to a GPU may take."""


def slots_size(lot: Lot) -> int:
    """The bytes of a generator's slots: one for each lot that it may be ahead."""
    return lot.ahead * bytes_of(with_lead(lot.layout, lot.rows + 1, lot.envs))


def slots_of(lot: Lot, block: mmap.mmap) -> list[Batch]:
    """The slots as they lie in a block."""
    slot = with_lead(lot.layout, lot.rows + 1, lot.envs)
    return [tensors_over(block, slot, number * bytes_of(slot)) for number in range(lot.ahead)]


@dataclass(frozen=True)
class Orders:
    """What a generator is told when it starts."""

    number: int
    make: Callable[[], Collector]
    """Builds its environments and its agent."""
    lot: Lot
    weights: WeightsPlan
    team: int = 1
    """How many generators act for all that learn together."""
    store: Callable[[], EpisodeStore] | None = None
    """Where it writes its episodes."""


def serve(pipe: Connection, orders: Orders, files: list[int]) -> None:
    """Collect until the learner closes the pipe or is gone."""
    *files, said = files
    speak_into(said)
    threading.Thread(target=end_with_parent, daemon=True).start()
    with reporting(pipe):
        generator = Generator(pipe, orders, files)
        with closing(generator.collector):
            generator.serve()


def speak_into(file: int) -> None:
    """Let what this process prints go into a file, line by line: a fork would share the learner's with its siblings."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        os.dup2(file, number)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    os.close(file)


class Generator:
    """A collector whose rows go straight into shared memory, where its weights are, too."""

    def __init__(self, pipe: Connection, orders: Orders, files: list[int]) -> None:
        random.seed(orders.number)  # a fork would share the state of these with its siblings
        np.random.seed(orders.number)  # noqa: NPY002
        self.pipe, self.number, self.lot = pipe, orders.number, orders.lot
        rows, weights = files
        self.slots = slots_of(orders.lot, mmap.mmap(rows, slots_size(orders.lot)))
        self.weights = Weights(orders.weights, weights, mmap.mmap(weights, orders.weights.size()))
        self.team = orders.team
        self.news = collect_warnings()
        self.collector = orders.make()
        if orders.store is not None:
            self.collector.record(orders.store)
        self.acted = int(self.weights.acted)
        self.loading = Seldom(LOADING)
        self.version = NEVER

    def serve(self) -> None:
        """Fill slot after slot, each when it may be filled."""
        filled = 0
        while True:
            begin = time.perf_counter()
            self.pipe.recv_bytes()
            start = time.perf_counter()
            chunk = self.fill(self.slots[filled % len(self.slots)])
            worked = time.perf_counter() - start
            report = Report(chunk.steps, chunk.episodes, self.version, worked, start - begin, self.news[:])
            self.news.clear()
            self.pipe.send_bytes(pickle.dumps(("rows", report)))
            filled += 1

    def fill(self, slot: Batch) -> Chunk:
        """Rows in a slot, acted upon with the newest weights."""
        agent = self.collector.agent
        # each generator's own count runs ahead of the learner's, which hears of rows later
        agent.acted = self.acted = max(self.acted, int(self.weights.acted))
        self.take_weights(agent)
        self.collector.buffer = slot
        chunk = self.collector.collect(self.lot.rows)
        self.weights.release(self.number)
        self.acted += self.lot.rows * self.lot.envs * self.team
        return chunk

    def take_weights(self, agent: Agent) -> None:
        """Act with the newest weights from now on: in place where that is possible, else with a copy of them."""
        tensors = agent.published()
        if tensors and tensors[0].is_cuda and not agent.on_policy and not self.loading.due:
            return
        with self.loading.timed():
            newest, version = self.weights.take(self.number)
            for tensor, value in zip(tensors, newest):
                if tensor.is_cuda:
                    tensor.data.copy_(value)
                else:
                    tensor.data = value
        self.version = version
