"""Collecting in generator processes on this machine: rows and weights through shared memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import sys
import threading
import time
import weakref
from functools import partial
from multiprocessing.connection import Connection, wait

import torch

from ..agents.base import Agent
from ..config.errors import UserError
from ..config.schema import EnvsConfig
from ..data.rows import Batch
from ..envs.crew import CLOSING, Lost
from ..envs.memory import SharedBlock
from ..nn import ranks
from .gathering import Crew, Gathering, Lot, Make, MakeStore
from .generator import FILL, Orders, serve, slots_of, slots_size
from .nursery import BROKEN, Nursery
from .weights import Weights, WeightsPlan

LOOK, GLANCE = 1.0, 0.01
"""Seconds between two looks at generators that do not report, and while weights are on their way to them."""


class ProcessCrew(Crew):
    """A generator process: started, given leave, heard, found dead, ended."""

    def __init__(self, number: int, first: int, lot: Lot, nursery: Nursery) -> None:
        super().__init__(number, first, lot)
        self.nursery = nursery
        self.block = SharedBlock(slots_size(lot))
        self.slots = slots_of(lot, self.block.map)
        self.process = 0
        self.pipe: Connection
        self.teller: threading.Thread
        """Tells what the generator prints."""
        self.taken = 0

    def launch(self, orders: Orders, weights: SharedBlock) -> None:
        """Start the process."""
        self.pipe, other = multiprocessing.Pipe()
        heard, said = os.pipe()
        try:
            with other:
                self.process = self.nursery.launch(orders, [other.fileno(), self.block.file, weights.file, said])
        finally:
            os.close(said)
            self.teller = threading.Thread(target=tell, args=(self.number, heard), daemon=True)
            self.teller.start()
        self.begun()
        self.taken = 0

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
        self.heard(words)

    def rows(self) -> Batch:
        """The rows of the report that is next; they stay until leave is given to fill their slot anew."""
        self.taken += 1
        return self.slots[(self.taken - 1) % self.lot.ahead]

    def end(self, patience: float) -> str:
        """How the process ended: by itself within so many seconds, or killed after them."""
        self.pipe.close()
        how = self.nursery.end(self.process, patience)
        self.teller.join(LOOK)  # a process of the environment's own may live on and keep it
        self.process = 0
        return how


def tell(number: int, file: int) -> None:
    """Repeat what a generator prints, whole lines with its label before each, until it has ended."""
    with open(file, errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(OSError, ValueError):  # nobody listens any more, but the generator is to go on
                sys.stderr.write(f"[generator {number}] {line.rstrip()}\n")
                sys.stderr.flush()


class ProcessCollector(Gathering):
    """Generators on this machine, and the rows they collect."""

    crews: list[ProcessCrew]

    def __init__(
        self, agent: Agent, make: Make, lots: list[tuple[int, Lot]], settings: EnvsConfig, device: torch.device
    ) -> None:
        nursery = Nursery(serve, make)
        crews = [ProcessCrew(number, first, lot, nursery) for number, (first, lot) in enumerate(lots)]
        super().__init__(agent, crews, settings, device)
        self.make = make
        self.store: MakeStore | None = None
        tensors = agent.published()
        self.plan = WeightsPlan.of(tensors, len(lots))
        self.block = SharedBlock(self.plan.size())
        self.weights = Weights(self.plan, self.block.file, self.block.map)
        self.weights.clear()
        if any(tensor.is_cuda for tensor in tensors):
            self.weights.lock_pages()
        self.dismissal = weakref.finalize(self, dismiss, crews, nursery)  # also if nobody closes this

    def record(self, store: MakeStore) -> None:
        """Let every generator write its episodes into a store."""
        self.store = store

    def _launch(self, crew: Crew) -> None:
        assert isinstance(crew, ProcessCrew)
        self.weights.release(crew.number)  # a generator that died may have held some
        self.weights.acted.fill_(self.agent.acted)
        make = partial(self.make, crew.number, crew.lot.envs, crew.lives)
        team = len(self.crews) * ranks.count()
        crew.launch(Orders(crew.number, make, crew.lot, self.plan, team, self.store), self.block)
        for _ in range(crew.lot.ahead):
            crew.allow()

    def _await(self) -> None:
        while missing := {crew.pipe: crew for crew in self.crews if not crew.reports}:
            self.weights.settle()
            for pipe in wait(list(missing), timeout=LOOK if self.weights.arriving is None else GLANCE):
                crew = missing[pipe]  # type: ignore[index]
                try:
                    crew.hear()
                except Lost:
                    self._replace(crew, crew.end(1.0))
            for crew in missing.values():
                if how := self._overdue(crew):
                    crew.end(0.0)
                    self._replace(crew, how)

    def _allow(self) -> None:
        self.weights.settle()
        self.weights.acted.fill_(self.agent.acted)
        super()._allow()

    def _offer(self, version: int, wait: bool) -> bool:
        taken = self.weights.publish(self.agent.published(), version)
        self.weights.settle(wait)
        return taken

    def publish(self, updates: int) -> None:
        """Make the agent's weights those that generators take next, if they are new and it is not too soon."""
        self.weights.settle()
        super().publish(updates)

    def close(self) -> None:
        """End all generators."""
        self.dismissal()
        self.weights.unlock_pages()
        self.block.close()
        for crew in self.crews:
            crew.block.close()


def dismiss(crews: list[ProcessCrew], nursery: Nursery) -> None:
    """End all generators: each may close its environments, and is killed if that takes long."""
    running = [crew for crew in crews if crew.process]
    for crew in running:
        crew.pipe.close()
    limit = time.monotonic() + CLOSING
    for crew in running:
        crew.end(max(0.0, limit - time.monotonic()))
    nursery.close()
