"""Updates that nobody has looked at yet: a GPU that is asked after each whether its numbers are finite waits for it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..data.replay import Replay
from ..data.rows import Batch
from .skips import Skips

LOG = logging.getLogger("reverie")

LOOK_EVERY = 50
"""Updates on a GPU between two looks at what has failed."""


@dataclass(frozen=True)
class Passed:
    """What is kept of an update, all of it on the device: to keep its batch would take the memory of all of them."""

    number: int
    failed: Tensor
    """How many in a row had failed by then."""
    index: Tensor
    """The steps (B, T) of its windows."""
    begun: Batch
    """First rows (B, 1, ...) of columns that updates rewrite: the latents that windows begin at."""
    about: Batch
    """What was told about the windows (B,) and is in no row."""


class Trail:
    """The updates since the last look, so that the batch that was bad is the one that is written down."""

    def __init__(self, replay: Replay, skips: Skips) -> None:
        self.replay, self.skips = replay, skips
        self.every = LOOK_EVERY if replay.device.type == "cuda" else 1
        self.passed: list[Passed] = []

    def add(self, number: int, failed: Tensor, batch: Batch) -> None:
        """Keep what identifies an update that has been made and written back; look if it is time to."""
        columns = self.replay.columns
        begun = {name: batch[name][:, :1].clone() for name in sorted(self.replay.mutable)}  # no view of the whole batch
        about = {name: value for name, value in batch.items() if name not in columns and name != "index"}
        self.passed.append(Passed(number, failed.clone(), batch["index"], begun, about))
        if len(self.passed) >= self.every:
            self.look()

    def look(self) -> None:
        """See what has failed since the last look, in order, as if each had been looked at when it was made."""
        passed, self.passed = self.passed, []
        if not passed:
            return
        counts = torch.stack([each.failed for each in passed]).tolist()
        for count, each in zip(counts, passed):
            self.skips.look(count, partial(self.batch_of, each), each.number)

    def batch_of(self, update: Passed) -> Batch:
        """The batch of an update as the replay still has it, without windows of which rows were overwritten since.

        Rows are as they were, and so are the latents that the windows began at. Other latents, which an update does not
        read, may be newer.
        """
        index = update.index.to(self.replay.place)
        whole = self.replay.held(index).all(1)
        if lost := len(whole) - int(whole.sum()):
            LOG.warning("%d of %d windows of update %d were overwritten since", lost, len(whole), update.number)
        batch = self.replay.at(index[whole]) | {"index": index[whole]}
        whole = whole.to(update.index.device)
        batch |= {name: torch.cat([value[whole], batch[name][:, 1:]], 1) for name, value in update.begun.items()}
        return batch | {name: value[whole] for name, value in update.about.items()}
