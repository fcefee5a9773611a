"""Collecting in generator processes, while the learner learns.

A chunk is one slot of rows from every generator, side by side, so that all environments stay in step as they do in one
process. What holds the ratio of steps to updates is that both sides can wait: the learner takes a chunk only when it
has made the updates that are due, and for that waits until there is one; a generator may fill only as many slots as the
learner has given back, and then waits.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from multiprocessing.connection import wait
from statistics import fmean
from typing import Any

import torch

from ..agents.base import Agent
from ..config.errors import UserError
from ..config.schema import EnvsConfig
from ..data.episodes import EpisodeStore
from ..data.rows import Batch
from ..data.storage import Layout, array_of
from ..envs.crew import Lost
from ..envs.memory import SharedBlock
from .collector import Chunk
from .crew import Crew, Make, dismiss
from .generator import Report, SlotsPlan, serve
from .nursery import Nursery
from .weights import Seldom, Weights, WeightsPlan

LOG = logging.getLogger("reverie")

PUBLISHING = 0.02
"""The share of the learner's time that publishing weights may take."""
SLOW = 20
"""A generator that takes as many times longer than it ever did, and longer than an environment may, is lost."""


class ProcessCollector:
    """Generators on this machine, and the rows they collect.

    Where the agent learns on-policy, generators get leave to fill their one slot when the weights are published that
    they are to act with, and so wait while it learns.
    """

    def __init__(
        self, agent: Agent, make: Make, plans: list[SlotsPlan], settings: EnvsConfig, device: torch.device
    ) -> None:
        self.agent, self.settings, self.device = agent, settings, device
        tensors = agent.published()
        self.plan = WeightsPlan.of(tensors, len(plans))
        self.block = SharedBlock(self.plan.size())
        self.weights = Weights(self.plan, self.block.file, self.block.map)
        self.weights.clear()
        if any(tensor.is_cuda for tensor in tensors):
            self.weights.lock_pages()
        firsts = accumulate([each.envs for each in plans], initial=0)
        nursery = Nursery(serve, make)
        self.generators = [Crew(number, first, each, make, nursery)
                           for number, (first, each) in enumerate(zip(firsts, plans))]  # fmt: skip
        self.dismissal = weakref.finalize(self, dismiss, self.generators, nursery)  # also if nobody closes this
        self.publishing = Seldom(PUBLISHING)
        self.updates = self.version = 0
        self.owed: list[Crew] = []
        """Generators that get leave with the next weights."""
        self.started = False
        self.losses = 0
        self.taken = 0.0

    def _start(self) -> None:
        self.weights.publish(self.agent.published(), self.updates)
        self.weights.settle(wait=True)
        self.weights.acted.fill_(self.agent.acted)
        for each in self.generators:
            each.launch(self.plan, self.block)
        self.started = True
        self.taken = time.perf_counter()

    def collect(self, steps: int) -> Chunk:
        """The next slot of every generator; `steps` is theirs to know."""
        if not self.started:
            self._start()
        begin = time.perf_counter()
        self._await()
        heard = time.perf_counter()
        reports = [each.reports.popleft() for each in self.generators]
        rows = self._joined([each.rows() for each in self.generators])
        severed = tuple(env for each in self.generators if each.fresh for env in each.envs)
        for each, report in zip(self.generators, reports):
            each.fresh = False
            for level, text in report.warnings:
                LOG.log(level, f"generator {each.number}: {text}")
        self._give_back()
        metrics = self._metrics(reports, heard - begin)
        episodes = [replace(episode, env=each.first + episode.env)
                    for each, report in zip(self.generators, reports) for episode in report.episodes]  # fmt: skip
        return Chunk(rows, episodes, sum(report.steps for report in reports), severed, metrics)

    def _await(self) -> None:
        """Wait until there is a slot of every generator; those that are lost are replaced."""
        while missing := {each.pipe: each for each in self.generators if not each.reports}:
            for pipe in wait(list(missing), timeout=1.0):
                try:
                    missing[pipe].hear()  # type: ignore[index]
                except Lost:
                    self._replace(missing[pipe], missing[pipe].end(1.0))  # type: ignore[index]
            for each in missing.values():
                limit = max(self.settings.timeout, SLOW * each.slowest)
                if not each.reports and time.monotonic() - each.since > limit:
                    each.end(0.0)
                    self._replace(each, f"has not collected {each.plan.rows} rows within {limit:.0f} s")

    def _replace(self, lost: Crew, how: str) -> None:
        """Start a new generator in the place of one that has ended."""
        self.weights.release(lost.number)
        lost.deaths += 1
        self.losses += 1
        if lost.deaths >= self.settings.max_restarts:
            raise UserError(
                f"generator {lost.number} {how}, {lost.deaths} times in a row: look for what ends it, such as memory "
                "that runs out, or use --collect.mode inline"
            )
        LOG.warning(f"generator {lost.number} {how}: a new one takes its place, what it had not handed over is lost")
        lost.fresh = True
        lost.launch(self.plan, self.block)

    def _joined(self, parts: list[Batch]) -> Batch:
        """Rows of all generators side by side, where they are learned from."""
        pinned = self.device.type == "cuda"
        rows: Batch = {}
        for name, first in parts[0].items():
            envs = sum(part[name].shape[1] for part in parts)
            whole = torch.empty((first.shape[0], envs, *first.shape[2:]), dtype=first.dtype, pin_memory=pinned)
            array = array_of(whole)  # torch would wake its threads for an image
            for each, part in zip(self.generators, parts):
                array[:, each.envs.start : each.envs.stop] = array_of(part[name])
            rows[name] = whole.to(self.device, non_blocking=pinned)
        return rows

    def _give_back(self) -> None:
        rows = self.generators[0].plan.rows
        self.agent.acted += rows * sum(each.plan.envs for each in self.generators)
        self.weights.acted.fill_(self.agent.acted)
        if self.agent.on_policy:
            self.owed = list(self.generators)
        else:
            for each in self.generators:
                each.allow()

    def record(self, store: Callable[[], EpisodeStore]) -> None:
        """Let every generator write its episodes into a store."""
        for each in self.generators:
            each.store = store

    def publish(self, updates: int) -> None:
        """Make the agent's weights those that generators take next, if they are new and it is not too soon."""
        self.updates = updates
        self.weights.settle()
        if updates != self.version and (self.agent.on_policy or self.publishing.due):
            with self.publishing.timed():
                if self.weights.publish(self.agent.published(), updates):
                    self.version = updates
        if self.owed:
            self.weights.settle(wait=True)
            for each in self.owed:
                each.allow()
            self.owed = []

    def _metrics(self, reports: list[Report], waited: float) -> dict[str, float]:
        """How fast rows come, how old the weights are that they were acted upon with, and who waits for whom."""
        now = time.perf_counter()
        passed, self.taken = now - self.taken, now
        rows = [each.plan.rows * each.plan.envs for each in self.generators]
        shares = [report.waited / (report.waited + report.worked) for report in reports]
        return {
            "collect/rows_per_second": sum(rows) / passed,
            "collect/generator_rows_per_second": fmean(n / report.worked for n, report in zip(rows, reports)),
            "collect/lag": self.updates - fmean(report.version for report in reports),
            "collect/learner_waited": waited / passed,
            "collect/generators_waited": fmean(shares),
            "collect/publish_seconds": self.publishing.cost,
            "collect/generators_lost": float(self.losses),
        }

    def state(self) -> dict[str, Any]:
        """Which lives the generators have had; their episodes begin anew in a resumed run."""
        return {"lives": [each.lives for each in self.generators]}

    def restore(self, saved: dict[str, Any]) -> bool:
        """Begin new episodes, with other seeds than before."""
        before = max(saved.get("lives", [0]), default=0)
        for each in self.generators:
            each.lives = before
        return True

    def close(self) -> None:
        """End all generators."""
        self.dismissal()
        self.block.close()
        for each in self.generators:
            each.block.close()


def plans_of(layout: Layout, envs: int, generators: int, rows: int, depth: int) -> list[SlotsPlan]:
    """The slots of each generator, the environments shared evenly."""
    return [
        SlotsPlan(layout, rows, envs // generators + (number < envs % generators), depth)
        for number in range(generators)
    ]
