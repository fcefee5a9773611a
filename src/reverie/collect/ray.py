"""Collecting in actors of a Ray cluster: rows and weights through Ray's object store.

Weights are put into the store once for each version; Ray brings them to every machine that needs them, once. A
generator whose process or machine is lost is started again wherever there is room; what it had not handed over is lost.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections import deque
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from ..agents.base import Agent
from ..config.errors import UserError, extra, first_line
from ..config.schema import EnvsConfig
from ..data.rows import Batch
from ..data.storage import FOREIGN, array_of
from ..envs.worker import collect_warnings
from .collector import Collector
from .gathering import Crew, Gathering, Lot, Make, MakeStore, Report

LOG = logging.getLogger("reverie")

PATIENCE = 10.0
"""Seconds between two looks at generators that do not report."""


def connected(address: str) -> Any:
    """The ray package, connected to a cluster."""
    try:
        import ray
    except ImportError as error:
        raise UserError(f"Ray is not installed: {extra('ray')}") from error
    if not ray.is_initialized():
        try:
            _knock(address)
            ray.init(None if address == "local" else address, include_dashboard=False, logging_level=logging.WARNING)
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError(
                f"no Ray cluster at --collect.address {address}: {first_line(error)}; start one with `ray start "
                "--head`, or take --collect.address local"
            ) from error
    return ray


def _knock(address: str) -> None:
    """Fail at once where nobody listens; Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


class RayGenerator:
    """A generator as an actor: environments and a copy of the agent."""

    def __init__(self, make: Make, number: int, lot: Lot, life: int, store: MakeStore | None) -> None:
        torch.set_num_threads(1)
        self.news = collect_warnings()
        self.lot = lot
        self.make, self.store = partial(make, number, lot.envs, life), store
        self.version = -1
        self.ended = time.perf_counter()

    @cached_property
    def collector(self) -> Collector:
        """Environments and agent, built when they are first needed: what goes wrong then comes back as an answer."""
        made = self.make()
        if self.store is not None:
            made.record(self.store)
        self.ended = time.perf_counter()
        return made

    def collect(self, weights: list[Any], version: int, acted: int) -> tuple[Report, dict[str, np.ndarray]]:
        """Rows acted upon with the weights that a reference stands for, and a report about them."""
        import ray

        agent = self.collector.agent
        begin = time.perf_counter()
        agent.acted = acted
        if version != self.version:
            for tensor, value in zip(agent.published(), ray.get(weights[0])):
                tensor.data.copy_(torch.tensor(value))
            self.version = version
        chunk = self.collector.collect(self.lot.rows)
        rows = {name: array_of(value.cpu()) for name, value in chunk.rows.items()}
        now = time.perf_counter()
        report = Report(chunk.steps, chunk.episodes, version, now - begin, begin - self.ended, self.news[:])
        self.news.clear()
        self.ended = now
        return report, rows


class RayCrew(Crew):
    """An actor, and what it was asked for."""

    def __init__(self, ray: Any, number: int, first: int, lot: Lot) -> None:
        super().__init__(number, first, lot)
        self.ray = ray
        self.actor: Any = None
        self.asked: deque[list[Any]] = deque()
        """References to a report and rows to come."""
        self.given: deque[dict[str, np.ndarray]] = deque()
        """The rows of reports that were heard."""
        self.terms: tuple[Any, ...] = ()
        """What the next lot is to be collected with: a reference to weights, their version, rows acted upon so far."""

    def allow(self) -> None:
        """Ask for one more lot."""
        self.asked.append(self.actor.collect.options(num_returns=2).remote(*self.terms))

    def hear(self) -> None:
        """Take what has come; an error of Ray if the generator or what it gave is lost."""
        report, rows = self.ray.get(self.asked.popleft())
        self.given.append(rows)
        self.heard(report)

    def rows(self) -> Batch:
        """The rows of the report that is next."""
        found: Batch = {}
        for name, value in self.given.popleft().items():
            tensor = torch.from_numpy(value if value.flags.writeable else value.copy())
            dtype = self.lot.layout[name][1]
            found[name] = tensor.view(dtype) if dtype in FOREIGN else tensor
        return found

    def end(self) -> None:
        """End the actor and forget what it was asked for."""
        self.asked.clear()
        self.given.clear()
        if self.actor is not None:
            with contextlib.suppress(self.ray.exceptions.RayError):
                self.ray.kill(self.actor)
        self.actor = None


class RayCollector(Gathering):
    """Generators on a cluster, and the rows they collect."""

    crews: list[RayCrew]

    def __init__(
        self,
        agent: Agent,
        make: Make,
        lots: list[tuple[int, Lot]],
        settings: EnvsConfig,
        device: torch.device,
        ray: Any,
    ) -> None:
        crews = [RayCrew(ray, number, first, lot) for number, (first, lot) in enumerate(lots)]
        super().__init__(agent, crews, settings, device)
        self.ray, self.make = ray, make
        self.store: MakeStore | None = None
        self.weights: Any = None
        self.shown = 0

    def record(self, store: MakeStore) -> None:
        """Let every generator write its episodes into a store, which all machines must reach."""
        self.store = store

    def _offer(self, version: int, wait: bool) -> bool:
        self.weights = self.ray.put([array_of(tensor.detach().cpu()) for tensor in self.agent.published()])
        self.shown = version
        return True

    def _launch(self, crew: Crew) -> None:
        assert isinstance(crew, RayCrew)
        kind = self.ray.remote(num_cpus=self._cores(first=crew.actor is None), max_restarts=0)(RayGenerator)
        crew.end()
        crew.actor = kind.remote(self.make, crew.number, crew.lot, crew.lives, self.store)
        crew.begun()
        crew.terms = [self.weights], self.shown, self.agent.acted
        for _ in range(crew.lot.ahead):
            crew.allow()

    def _cores(self, first: bool) -> float:
        """The cores that a generator asks for: one, or less where the cluster has too few and it would wait."""
        if first:
            return min(1.0, int(100 * self.ray.cluster_resources().get("CPU", 0.0) / len(self.crews)) / 100)
        return float(self.ray.available_resources().get("CPU", 0.0) >= 1)

    def _await(self) -> None:
        while missing := {crew.asked[0][0]: crew for crew in self.crews if not crew.reports}:
            ready, _ = self.ray.wait(list(missing), num_returns=1, timeout=PATIENCE)
            for reference in ready:
                self._hear(missing[reference])
            for crew in missing.values():
                if how := self._overdue(crew):
                    self._replace(crew, how)

    def _hear(self, crew: RayCrew) -> None:
        errors = self.ray.exceptions
        try:
            crew.hear()
        except errors.RayTaskError as error:  # raised by its own code
            if isinstance(error.cause, UserError):
                raise error.cause from None
            raise
        except errors.RayError as error:  # its process, its machine or what it gave is gone
            self._replace(crew, f"is lost ({first_line(error)})")

    def _allow(self) -> None:
        for crew in self.crews:
            crew.terms = [self.weights], self.shown, self.agent.acted
        super()._allow()

    def close(self) -> None:
        """End all generators; the cluster stays, unless it is our own and this process ends."""
        for crew in self.crews:
            crew.end()
