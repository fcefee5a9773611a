"""Collecting while a GPU learns: a copy of the agent acts, on a stream of its own."""

from __future__ import annotations

from typing import Any

import torch

from ..agents.base import Agent, restore_random
from ..data.rows import Batch
from ..envs.rows import RowStream
from ..nn.beside import Beside
from .collector import Chunk, Collector

MANY = 16
"""Updates at once after which what was learned is worth waiting for."""


class Understudy(Collector):
    """Acts with a copy of the agent, which gets the weights at the end of each chunk.

    Updates are queued after that. So the next chunk is acted upon while they run, with weights that are older by the
    updates of one chunk, however fast either is.
    """

    def __init__(self, stream: RowStream, agent: Agent, copy: Agent, device: torch.device, rows: int) -> None:
        """Takes `rows` rows at a time: as many as there are between two updates, if there are any."""
        super().__init__(stream, copy, device)
        self.original, self.count = agent, rows
        self.weights, self.newest = copy.published(), agent.published()
        self.prompted = False
        """Whether the copy has weights to act with."""
        self.updates: int | None = None
        """How many updates the agent had made when that was last told."""
        self.beside = Beside(device, urgency=2)
        self.filled: Batch = {}
        """The buffer of the last chunk, which may not have been read yet."""

    def collect(self, steps: int) -> Chunk:
        """The next rows of every environment, acted upon beside what the GPU does."""
        if not self.prompted:
            self._prompt()
        self.buffer, self.filled = self.filled, self.buffer
        with self.beside:
            chunk = super().collect(self.count)
        self.beside.join()
        self.original.acted = self.agent.acted
        self._prompt()
        return chunk

    @torch.no_grad()
    def _prompt(self) -> None:
        """Give the copy the weights that the agent has after all updates so far."""
        torch._foreach_copy_(self.weights, self.newest)
        self.beside.fork()
        self.prompted = True

    def publish(self, updates: int) -> None:
        """Let the copy wait for the newest weights if the agent has learned much at once."""
        if self.updates is not None and updates - self.updates >= MANY:
            self.prompted = False
        self.updates = updates

    def state(self) -> dict[str, Any]:
        """What brings the stream back to this very row, what the copy acts with and what it draws from."""
        weights = [weight.detach() for weight in self.weights] if self.prompted else []
        return super().state() | {"drawn": self.agent.generator.get_state(), "weights": weights}

    def restore(self, saved: dict[str, Any]) -> bool:
        """Go on where `state` was taken, with the weights of then; whether new episodes begin instead."""
        self.agent.acted, self.updates = self.original.acted, None
        if "drawn" in saved:
            restore_random(self.agent.generator, saved["drawn"])
        self.prompted = bool(saved.get("weights"))
        if self.prompted:
            with torch.no_grad():
                for weight, kept in zip(self.weights, saved["weights"], strict=True):
                    weight.copy_(kept)
            self.beside.fork()
        return super().restore(saved)
