"""Environments in groups that take turns: while the agent acts for one group, the games of the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch

from ..agents.base import Agent
from ..config.errors import UserError
from ..config.schema import EnvsConfig
from ..data.episodes import EpisodeStore
from ..data.rows import Episode
from ..envs.rows import RowStream
from .collector import Chunk, Collector

LOG = logging.getLogger("reverie")


class Turns:
    """Collects with all groups; their environments lie side by side in the rows."""

    def __init__(self, groups: Sequence[Collector]) -> None:
        self.groups = groups
        self.firsts = list(accumulate((group.stream.count for group in groups), initial=0))
        """The number of each group's first environment."""

    def collect(self, steps: int) -> Chunk:
        """`steps` more rows of every environment, acted upon, and the row that follows them."""
        for group in self.groups:
            group.begin()
        episodes: list[Episode] = []
        taken = 0
        for t in range(steps + 1):
            for group, first in zip(self.groups, self.firsts):
                if t:
                    ended, count = group.hear()
                    episodes += [replace(episode, env=first + episode.env) for episode in ended]
                    taken += count
                if t < steps:
                    group.answer(t, steps + 1)
                else:
                    group.end(t)
        buffers = [group.buffer for group in self.groups]
        return Chunk({key: torch.cat([each[key] for each in buffers], 1) for key in buffers[0]}, episodes, taken)

    def record(self, store: Callable[[], EpisodeStore]) -> None:
        """Write the episodes to come into a store."""
        for group in self.groups:
            group.record(store)

    def publish(self, updates: int) -> None:
        """Nothing: the agent that acts is the one that learns."""

    def state(self) -> dict[str, Any]:
        """What brings all groups back to this very row, as tensors and plain values."""
        return {"groups": [group.state() for group in self.groups]}

    def restore(self, saved: dict[str, Any]) -> bool:
        """Go on where `state` was taken; whether new episodes begin instead, as they do with other groups."""
        states = saved.get("groups", ())
        if len(states) != len(self.groups):
            LOG.warning("episodes cannot go on with other --envs.groups than before: new ones begin")
            return True
        anew = [group.restore(each) for group, each in zip(self.groups, states)]
        return any(anew)

    def close(self) -> None:
        """End the environments."""
        for group in self.groups:
            group.close()


def check_groups(settings: EnvsConfig, inline: bool) -> None:
    """Refuse groups that there are no environments for, or nobody to take turns."""
    groups, count = settings.groups, settings.count
    if groups > 1 and not inline:
        raise UserError(f"--envs.groups {groups} is for --collect.mode inline: generators take no turns")
    if groups < 1 or (groups > 1 and groups > count):
        raise UserError(f"--envs.groups {groups} have --envs.count {count} environments to share: take 1 to {count}")


def turns(make: Callable[[int, int], RowStream], settings: EnvsConfig, agent: Agent, device: torch.device) -> Turns:
    """The groups of a run, made by their number and how many environments they have, which are shared evenly."""
    share, left = divmod(settings.count, settings.groups)
    with ExitStack() as unless_made:
        streams = [unless_made.enter_context(closing(make(n, share + (n < left)))) for n in range(settings.groups)]
        unless_made.pop_all()
    return Turns([Collector(stream, agent, device) for stream in streams])
