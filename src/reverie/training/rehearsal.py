"""Learning from the past: new rows go into the replay, and updates on replayed windows follow at a fixed ratio."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..agents.base import Agent, Learned
from ..collect.collector import Chunk
from ..config.dreamer import ReplayConfig
from ..config.errors import UserError
from ..data.disk import Archive
from ..data.replay import Replay
from ..data.rows import Batch
from ..data.select import Newest, Selector, Uniform, Weighting
from ..nn import ranks
from .feed import Feed
from .skips import Skips
from .trail import Trail

LOG = logging.getLogger("reverie")

ADVICE = "lower --optim.model.lr, or take --world.precision float32"
DUMPS = 3
"""Batches written down at most."""
LOOK = 60
"""Rows of a window to look at, if windows to learn from are shorter."""


class Rehearsal:
    """The replay, and how much is still to be learned from it."""

    def __init__(self, replay: Replay, config: ReplayConfig, folder: Path, feed: Feed | None = None) -> None:
        self.replay, self.config, self.folder, self.feed = replay, config, folder, feed
        self.archive = Archive(folder / "replay") if config.save else None
        self.length = config.length + int(config.start == "stored")
        self.batch, left = divmod(config.batch, ranks.count())
        """Windows of a batch that this process learns from."""
        if left:
            raise UserError(f"--replay.batch {config.batch} does not divide into {ranks.count()} processes")
        self.collected = 0
        self.waited = 0
        self.due = 0.0
        self.started = False
        self.updates = 0
        self.trail = Trail(replay, Skips(folder, "updates", ADVICE, DUMPS))

    def learn(self, agent: Agent, chunk: Chunk, steps: int) -> Iterator[Learned]:
        """Remember a chunk's rows, then make the updates that are due, one at a time.

        `steps` were collected since the last time, by all processes that learn together; each makes the same updates.
        """
        if chunk.severed:
            self.replay.sever(chunk.severed)
        if chunk.rows:
            self.replay.add({key: rows[:-1] for key, rows in chunk.rows.items() if key not in agent.transient})
        if self.feed is not None:
            yield from self._fed(self.feed, steps)
        self.collected += steps
        self.waited += steps
        if not self.started:
            enough = self.collected >= max(self.config.warmup, self.config.prefill)
            ready = enough and self.replay.ready(self.batch, self.length)
            self.started = ranks.sums([ready], self.replay.device)[0] == ranks.count()
            self.due += self.config.pretrain * (self.started and not self.updates)
        if self.started:
            self.due += steps * self.config.ratio / (self.config.batch * self.config.length)
        if self.waited < self.config.train_every:
            return
        self.waited = 0
        while self.due >= 1:
            self.due -= 1
            yield self.update(agent)

    def _fed(self, feed: Feed, steps: int) -> Iterator[Learned]:
        """Take new episodes from the store, if it is time to look; metrics about them."""
        fed = feed.refill(self.replay, steps)
        self.collected += fed
        if not feed.live and not self.replay.ready(self.batch, self.length):
            raise UserError(
                f"{feed.place} holds {len(self.replay):,} steps, too few to learn from without collecting "
                f"({len(feed.reader.store.damaged)} files are damaged): let it fill first, or add --store.live True"
            )
        if fed > len(self.replay):
            LOG.warning(
                f"{feed.place} gave {fed:,} steps, of which the replay keeps the newest {len(self.replay):,}: "
                "raise --replay.capacity to learn from all of them"
            )
        if fed:
            yield Learned({name: torch.tensor(float(value)) for name, value in feed.metrics().items()})

    def update(self, agent: Agent) -> Learned:
        """One update on sampled windows, and what it found out about them written back."""
        batch = self.replay.sample(self.batch, self.length)
        learned = agent.learn_replay(batch)
        self.replay.update(batch["index"], learned.writeback)
        self.updates += 1
        failed = agent.failures()
        if failed is not None:
            self.trail.add(self.updates, failed, batch)
        return learned

    def glance(self) -> Batch | None:
        """A batch of windows to look at, drawn evenly; None before learning begins. Training goes on as without it."""
        if not self.started:
            return None
        generator = torch.Generator(self.replay.place).manual_seed(self.updates)
        length = max(self.length, min(LOOK, (self.replay.total - self.replay.first) // 2))
        evenly = Uniform(replace(self.replay.ring, generator=generator), Weighting())
        return self._looked_at(self.batch, length, evenly)

    def newest(self) -> Batch | None:
        """The newest window of every environment, or of as many as a batch has; None where none is new."""
        if not self.started or (self.feed is not None and not self.feed.live):
            return None
        count = min(self.replay.envs, self.batch)
        return self._looked_at(count, self.length, Newest(self.replay.ring, Weighting()))

    def _looked_at(self, count: int, length: int, selection: Selector) -> Batch:
        batch = self.replay.sample(count, length, selection)
        return batch | {"continues": torch.zeros_like(batch["is_first"][:, 0])}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; the rows themselves go to files beside it. What has failed by now is seen before."""
        self.trail.look()
        if self.archive is not None:
            self.archive.save(self.replay)
        counts = {name: getattr(self, name) for name in PACE}
        return {"replay": self.replay.state(), **counts, **({"feed": self.feed.state()} if self.feed else {})}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on where `state` was taken; without the saved rows the replay fills anew before learning goes on."""
        for name in PACE:
            setattr(self, name, saved[name])
        if self.archive is not None:
            self.archive.load(self.replay, saved["replay"])
        if self.feed is not None and "feed" in saved and len(self.replay):
            self.feed.restore(saved["feed"])
        if not self.replay.ready(self.batch, self.length):
            self.started, self.collected = False, 0

    def follow_first(self) -> None:
        """Learn at the pace of the first process, and only when all of them have enough to learn from."""
        for name, value in ranks.agreed({name: getattr(self, name) for name in PACE}).items():
            setattr(self, name, value)
        ready = self.started and self.replay.ready(self.batch, self.length)
        self.started = ranks.sums([ready], self.replay.device)[0] == ranks.count()


PACE = ("collected", "waited", "due", "started", "updates")
"""Counts that a checkpoint keeps."""
