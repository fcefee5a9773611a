"""What collecting with generators has in common, wherever they run.

A chunk is one lot of rows from every generator, side by side, so that all environments stay in step as they do in one
process. What holds the ratio of steps to updates is that both sides can wait: the learner takes a chunk only when it
has made the updates that are due, and then waits until there is one; a generator may collect only as many lots as it
has leave for, gets more leave when the learner has taken one, and else waits.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean
from typing import Any

import torch

from ..agents.base import Agent
from ..config.errors import UserError
from ..config.schema import EnvsConfig
from ..data.episodes import EpisodeStore
from ..data.rows import Batch, Episode
from ..data.storage import Layout, array_of
from ..nn import ranks
from .collector import Chunk, Collector
from .weights import Seldom

LOG = logging.getLogger("reverie")

PUBLISHING = 0.02
"""The share of the learner's time that publishing weights may take."""

SLOW = 20
"""A generator that takes as many times longer than it ever did, and longer than an environment may, is lost."""

Make = Callable[[int, int, int], Collector]
"""Builds the collector of a generator from its number, how many environments it has, and which of its lives this is."""
MakeStore = Callable[[], EpisodeStore]


@dataclass(frozen=True)
class Lot:
    """What a generator hands over at a time: rows (T + 1, N, ...); and how many such it may be ahead."""

    layout: Layout
    rows: int
    envs: int
    ahead: int


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


class Crew:
    """One generator as the learner sees it; its environments are those from `first` on."""

    def __init__(self, number: int, first: int, lot: Lot) -> None:
        self.number, self.first, self.lot = number, first, lot
        self.lives = 0
        self.deaths = 0
        """In a row, without rows handed over between them."""
        self.fresh = False
        """Whether the next rows are the first of one that took another's place."""
        self.reports: deque[Report] = deque()
        self.since = 0.0
        """When it was last heard or given leave."""
        self.slowest = 0.0
        self.proven = False
        """Whether the one that is at work has reported yet."""

    @property
    def envs(self) -> range:
        """The numbers of its environments."""
        return range(self.first, self.first + self.lot.envs)

    def begun(self) -> None:
        """Count one more life, which has just begun."""
        self.lives += 1
        self.proven = False
        self.since = time.monotonic()

    def heard(self, report: Report) -> None:
        """Keep a report until it is taken."""
        self.reports.append(report)
        self.deaths = 0
        self.proven = True
        self.slowest = max(self.slowest, report.worked)
        self.since = time.monotonic()

    def rows(self) -> Batch:
        """The rows of the report that is next."""
        raise NotImplementedError

    def allow(self) -> None:
        """Give leave to collect one more lot."""
        raise NotImplementedError


class Gathering:
    """The generators of a run. Those of an agent that learns on-policy get leave when the weights are published that
    they are to act with, and so wait while it learns.
    """

    def __init__(self, agent: Agent, crews: Sequence[Crew], settings: EnvsConfig, device: torch.device) -> None:
        self.agent, self.crews, self.settings, self.device = agent, crews, settings, device
        self.publishing = Seldom(PUBLISHING)
        self.updates = self.version = 0
        self.owed = False
        """Whether leave is to be given with the next weights."""
        self.started = False
        self.losses = 0
        self.taken = 0.0

    def _offer(self, version: int, wait: bool) -> bool:
        """Let generators have the agent's weights, at once if `wait`; whether they will."""
        raise NotImplementedError

    def _launch(self, crew: Crew) -> None:
        """Start a generator and give it leave for all it may be ahead."""
        raise NotImplementedError

    def _await(self) -> None:
        """Wait until there is a report of every generator; those that are lost are replaced."""
        raise NotImplementedError

    def collect(self, steps: int) -> Chunk:
        """The next lot of every generator; how much that is they know themselves."""
        if not self.started:
            self._offer(self.updates, wait=True)
            self.version = self.updates
            for crew in self.crews:
                self._launch(crew)
            self.started, self.taken = True, time.perf_counter()
        begin = time.perf_counter()
        self._await()
        waited = time.perf_counter() - begin
        reports = [crew.reports.popleft() for crew in self.crews]
        rows = self._joined([crew.rows() for crew in self.crews])
        severed = tuple(env for crew in self.crews if crew.fresh for env in crew.envs)
        for crew, report in zip(self.crews, reports):
            crew.fresh = False
            for level, text in report.warnings:
                LOG.log(level, f"generator {crew.number}: {text}")
        self.agent.acted += sum(crew.lot.rows * crew.lot.envs for crew in self.crews) * ranks.count()
        self.owed = self.agent.on_policy
        if not self.owed:
            self._allow()
        episodes = [replace(episode, env=crew.first + episode.env)
                    for crew, report in zip(self.crews, reports) for episode in report.episodes]  # fmt: skip
        metrics = self._metrics(reports, waited)
        return Chunk(rows, episodes, sum(report.steps for report in reports), severed, metrics)

    def _allow(self) -> None:
        for crew in self.crews:
            crew.allow()
            crew.since = time.monotonic()

    def _joined(self, parts: list[Batch]) -> Batch:
        """Rows of all generators side by side, where they are learned from."""
        pinned = self.device.type == "cuda"
        rows: Batch = {}
        for name, first in parts[0].items():
            envs = sum(part[name].shape[1] for part in parts)
            whole = torch.empty((first.shape[0], envs, *first.shape[2:]), dtype=first.dtype, pin_memory=pinned)
            array = array_of(whole)  # torch would wake its threads for an image
            for crew, part in zip(self.crews, parts):
                array[:, crew.envs.start : crew.envs.stop] = array_of(part[name])
            rows[name] = whole.to(self.device, non_blocking=pinned)
        return rows

    def _overdue(self, crew: Crew) -> str:
        """What to say of a generator that has been silent for too long; nothing if it has not been.

        What that is shows once it has reported; before, each environment may take its time to start and at every row.
        """
        lot, patience = crew.lot, self.settings.timeout
        limit = max(patience, SLOW * crew.slowest) if crew.proven else patience * lot.envs * (1 + lot.rows)
        if crew.reports or time.monotonic() - crew.since <= limit:
            return ""
        return f"has not collected {lot.rows} rows within {limit:.0f} s (--envs.timeout {patience:g})"

    def _replace(self, lost: Crew, how: str) -> None:
        """Start a new generator in the place of one that has ended."""
        lost.deaths += 1
        self.losses += 1
        if lost.deaths >= self.settings.max_restarts:
            raise UserError(
                f"generator {lost.number} {how}, {lost.deaths} times in a row: look for what ends it, such as memory "
                "that runs out, or use --collect.mode inline"
            )
        LOG.warning(f"generator {lost.number} {how}: a new one takes its place, what it had not handed over is lost")
        lost.fresh = True
        self._launch(lost)

    def publish(self, updates: int) -> None:
        """Make the agent's weights those that generators take next, if they are new and it is not too soon."""
        self.updates = updates
        if not self.started:  # the first weights go with the first leave
            return
        if updates != self.version and (self.owed or self.publishing.due):
            with self.publishing.timed():
                if self._offer(updates, wait=self.owed):
                    self.version = updates
        if self.owed:
            self.owed = False
            self._allow()

    def _metrics(self, reports: list[Report], waited: float) -> dict[str, float]:
        """How fast rows come, how old the weights are that they were acted upon with, and who waits for whom."""
        now = time.perf_counter()
        passed, self.taken = now - self.taken, now
        rows = [crew.lot.rows * crew.lot.envs for crew in self.crews]
        return {
            "collect/rows_per_second": sum(rows) / passed,
            "collect/generator_rows_per_second": fmean(n / report.worked for n, report in zip(rows, reports)),
            "collect/lag": self.updates - fmean(report.version for report in reports),
            "collect/learner_waited": waited / passed,
            "collect/generators_waited": fmean(each.waited / (each.waited + each.worked) for each in reports),
            "collect/publish_seconds": self.publishing.cost,
            "collect/generators_lost": float(self.losses),
        }

    def state(self) -> dict[str, Any]:
        """How many lives the generators have had; their episodes begin anew in a resumed run."""
        return {"lives": max(crew.lives for crew in self.crews)}

    def restore(self, saved: dict[str, Any]) -> bool:
        """Begin new episodes, with other seeds than before."""
        for crew in self.crews:
            crew.lives = int(saved.get("lives", 0))
        return True


def lots_of(layout: Layout, envs: int, generators: int, rows: int, ahead: int) -> list[tuple[int, Lot]]:
    """The first environment and the lots of each generator, the environments shared evenly."""
    shares = [envs // generators + (number < envs % generators) for number in range(generators)]
    return [(first, Lot(layout, rows, share, ahead)) for first, share in zip(accumulate(shares, initial=0), shares)]
