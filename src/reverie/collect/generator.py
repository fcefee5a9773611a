"""A generator: a process with environments and a copy of the agent of its own, which collects until it is told to end.

It takes one byte for each slot of the shared memory that it may fill, and answers with a report once it has. Rows and
weights never travel through the pipe.
"""

from __future__ import annotations

import mmap
import pickle
import random
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
import torch

from ..agents.base import Agent
from ..config.errors import UserError
from ..data.episodes import EpisodeStore
from ..data.rows import Episode
from ..data.storage import Layout
from ..envs.worker import answer, collect_warnings, end_with_parent
from .collector import Chunk, Collector
from .shared import bytes_of, tensors_over, with_lead
from .weights import Seldom, Weights, WeightsPlan

FILL = b"\x00"
"""The order to fill the next slot."""
NEVER = -1
"""The version of weights that were never fetched."""
LOADING = 0.05
"""The share of a generator's time that fetching weights to a GPU may take."""


@dataclass(frozen=True)
class SlotsPlan:
    """The shared memory of one generator: slots of rows (T + 1, N, ...)."""

    layout: Layout
    rows: int
    envs: int
    depth: int

    @property
    def slot(self) -> Layout:
        """What one slot holds."""
        return with_lead(self.layout, self.rows + 1, self.envs)

    def size(self) -> int:
        """The bytes of all slots."""
        return self.depth * bytes_of(self.slot)

    def slots(self, block: mmap.mmap) -> list[dict[str, torch.Tensor]]:
        """The slots as they lie in a block."""
        return [tensors_over(block, self.slot, number * bytes_of(self.slot)) for number in range(self.depth)]


@dataclass(frozen=True)
class Orders:
    """What a generator is told when it starts."""

    number: int
    make: Callable[[], Collector]
    """Builds its environments and its agent."""
    slots: SlotsPlan
    weights: WeightsPlan
    store: Callable[[], EpisodeStore] | None = None
    """Where it writes its episodes."""


@dataclass(frozen=True)
class Report:
    """What a generator says about rows that it has collected."""

    steps: int
    episodes: list[Episode]
    version: int
    """Updates that the weights had seen which it acted with."""
    worked: float
    """Seconds it took."""
    waited: float
    """Seconds before, spent waiting for leave."""
    warnings: list[tuple[int, str]]


def serve(pipe: Connection, orders: Orders, files: list[int]) -> None:
    """Collect until the learner closes the pipe or is gone."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        generator = Generator(pipe, orders, files)
        with closing(generator.collector):
            generator.serve()
    except UserError as error:
        answer(pipe, "user_error", str(error))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception:
        answer(pipe, "bug", traceback.format_exc())


class Generator:
    """A collector whose rows go straight into shared memory, where its weights are, too."""

    def __init__(self, pipe: Connection, orders: Orders, files: list[int]) -> None:
        random.seed(orders.number)  # a fork would share the state of these with its siblings
        np.random.seed(orders.number)  # noqa: NPY002
        self.pipe, self.number, self.plan = pipe, orders.number, orders.slots
        rows, weights = files
        self.slots = orders.slots.slots(mmap.mmap(rows, orders.slots.size()))
        self.weights = Weights(orders.weights, weights, mmap.mmap(weights, orders.weights.size()))
        self.generators = orders.weights.readers
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

    def fill(self, slot: dict[str, torch.Tensor]) -> Chunk:
        """Rows in a slot, acted upon with the newest weights."""
        agent = self.collector.agent
        # each generator's own count runs ahead of the learner's, which hears of rows later
        agent.acted = self.acted = max(self.acted, int(self.weights.acted))
        self.take_weights(agent)
        self.collector.buffer = slot
        chunk = self.collector.collect(self.plan.rows)
        self.weights.release(self.number)
        self.acted += self.plan.rows * self.plan.envs * self.generators
        return chunk

    def take_weights(self, agent: Agent) -> None:
        """Act with the newest weights from now on: in place where that is possible, else with a copy of them."""
        tensors = agent.published()
        if tensors and tensors[0].is_cuda and not self.loading.due:
            return
        with self.loading.timed():
            newest, version = self.weights.take(self.number)
            for tensor, value in zip(tensors, newest):
                if tensor.is_cuda:
                    tensor.data.copy_(value)
                else:
                    tensor.data = value
        self.version = version
