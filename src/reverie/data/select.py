"""Which windows of the past are learned from.

A step has a number that it keeps for good: its row, counted from the first one ever added, times the number of
environments, plus its environment. The window that starts at step s has the steps s, s + N, s + 2N, ...
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .rows import Batch
from .tree import SumTree


@dataclass(frozen=True)
class Ring:
    """What never changes of the rings that are selected from."""

    envs: int
    rows: int
    """Rows a full ring holds."""
    generator: torch.Generator
    context: int = 0
    """Rows at the head of a window that give context and are not learned from."""

    @property
    def device(self) -> torch.device:
        return self.generator.device

    @property
    def slots(self) -> int:
        """Steps that full rings hold."""
        return self.rows * self.envs


@dataclass(frozen=True)
class Span:
    """The rows that are held, `first` up to `total`, and the length of the windows asked for."""

    ring: Ring
    first: int
    total: int
    length: int
    is_last: Tensor | None = None
    """The column of that name by slot, where there is one."""

    @property
    def windows(self) -> int:
        """How many windows there are in one environment."""
        return max(0, self.total - self.first - self.length + 1)

    @property
    def lowest(self) -> int:
        """The first step a window can start at."""
        return self.first * self.ring.envs

    @property
    def starts(self) -> int:
        """How many steps a window can start at, from the lowest on."""
        return self.windows * self.ring.envs


@dataclass(frozen=True)
class Weighting:
    """How the selectors weigh windows."""

    ends: float = 0.0
    """uniform: chance that a window with an episode's end in it is moved back so as to end there."""
    scale: float = 1000.0
    """recent: age in rows from which on chances fall."""
    alpha: float = 0.6
    """prioritised: exponent of the priorities; 0 makes them all equal."""


class Selector:
    """Chooses where windows start. Nothing here waits for the device."""

    def __init__(self, ring: Ring, weighting: Weighting) -> None:
        self.ring, self.weighting = ring, weighting

    def pick(self, count: int, span: Span) -> Tensor:
        """The steps (count,) at which windows start."""
        raise NotImplementedError

    def extras(self) -> Batch:
        """Columns (count,) that tell about the windows picked last."""
        return {}

    def added(self, start: int, stop: int) -> None:
        """Take note of the new rows from `start` to `stop`, at most as many as a ring holds."""

    def prioritise(self, slots: Tensor, priority: Tensor, held: Tensor) -> None:
        """Take new priorities (n,) of the steps in these slots; those not `held` any more keep what they have."""

    def reset(self, first: int, total: int) -> None:
        """Start over with rows that were put together anew."""

    def state(self) -> dict[str, Any]:
        """What a resumed run needs to select as if it had not stopped."""
        return {}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `state` gave."""

    def _rand(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.ring.generator, device=self.ring.device, dtype=torch.float64)

    def _below(self, high: int, count: int) -> Tensor:
        return torch.randint(high, (count,), generator=self.ring.generator, device=self.ring.device)


class Uniform(Selector):
    """Every start is equally likely."""

    def pick(self, count: int, span: Span) -> Tensor:
        starts = self._below(span.starts, count) + span.lowest
        return self._ending(starts, span) if self.weighting.ends > 0 else starts

    def _ending(self, starts: Tensor, span: Span) -> Tensor:
        """The starts, some moved back so that their windows end where an episode does."""
        if span.is_last is None:
            return starts
        steps = torch.arange(span.length, device=starts.device) * self.ring.envs
        ends = span.is_last[(starts[:, None] + steps) % self.ring.slots]  # B, T
        back = (span.length - 1 - ends.int().argmax(1)) * self.ring.envs
        chosen = self._rand(len(starts)) < self.weighting.ends
        return starts - back * (chosen & ends.any(1) & (starts - back >= span.lowest))


class Recent(Selector):
    """Newer starts are likelier: chances fall like 1 / (age + scale), age in rows, 0 for the newest possible start.

    Drawn by inverting the law's integral: of n rows, age k has the chance log((k + 1 + s) / (k + s)) / log(1 + n / s).
    """

    def pick(self, count: int, span: Span) -> Tensor:
        scale = self.weighting.scale
        age = torch.expm1(self._rand(count) * math.log1p(span.windows / scale)) * scale
        row = span.first + span.windows - 1 - age.long().clamp_(max=span.windows - 1)
        return row * self.ring.envs + self._below(self.ring.envs, count)


class Prioritised(Selector):
    """The chance of a start is proportional to priority ** alpha of the first row that is learned from.

    New rows have the highest priority there ever was. Losses that are not finite count as 0.
    """

    def __init__(self, ring: Ring, weighting: Weighting) -> None:
        super().__init__(ring, weighting)
        self.tree = SumTree(ring.slots, ring.device)
        self.top = torch.ones((), dtype=torch.float64, device=ring.device)

    def pick(self, count: int, span: Span) -> Tensor:
        slots = self.ring.slots
        low = (span.first + self.ring.context) % self.ring.rows * self.ring.envs
        high = low + span.starts  # the rows behind it, up to the newest, have weights but start no window
        before, total = self.tree.before(low), self.tree.total()
        mass = self.tree.before(high) if high <= slots else total + self.tree.before(high - slots)
        point = before + self._rand(count) * (mass - before)
        place = self.tree.find(torch.where(point >= total, point - total, point))
        # rounding may pass the last start by one
        return span.lowest + ((place - low) % slots).clamp_(max=span.starts - 1)

    def added(self, start: int, stop: int) -> None:
        rows, envs = self.ring.rows, self.ring.envs
        low, high = start % rows, start % rows + stop - start
        self.tree.fill(low * envs, min(high, rows) * envs, self.top)
        if high > rows:
            self.tree.fill(0, (high - rows) * envs, self.top)

    def prioritise(self, slots: Tensor, priority: Tensor, held: Tensor) -> None:
        finite = torch.nan_to_num(priority.double(), nan=0.0, posinf=0.0, neginf=0.0)
        weight = finite.clamp(min=1e-6) ** self.weighting.alpha
        weight = torch.where(held, weight, self.tree.levels[0].index_select(0, slots))
        self.tree.put(slots, weight)
        self.top = torch.maximum(self.top, weight.max())

    def reset(self, first: int, total: int) -> None:
        self.tree = SumTree(self.ring.slots, self.ring.device)
        if total > first:
            self.added(first, total)

    def state(self) -> dict[str, Any]:
        return {"tree": self.tree.state(), "top": self.top.clone()}

    def restore(self, saved: dict[str, Any]) -> None:
        self.tree.restore(saved["tree"])
        self.top = saved["top"].to(self.ring.device)


class Online(Uniform):
    """Windows that follow each other, each handed out once and in order as soon as it is complete; else uniform ones.

    They overlap by the context, so that every row is learned from once. Rows overwritten before their turn are skipped.
    """

    def __init__(self, ring: Ring, weighting: Weighting) -> None:
        super().__init__(ring, weighting)
        self.row, self.env = 0, 0

    def pick(self, count: int, span: Span) -> Tensor:
        envs, stride = self.ring.envs, span.length - self.ring.context
        if self.row < span.first:
            self.row, self.env = span.first, 0
        windows = max(0, (span.total - self.row - span.length) // stride + 1)
        fresh = min(count, max(0, windows * envs - self.env))
        number = torch.arange(self.env, self.env + fresh, device=self.ring.device)
        starts = (self.row + number // envs * stride) * envs + number % envs
        passed, self.env = divmod(self.env + fresh, envs)
        self.row += passed * stride
        return torch.cat([starts, super().pick(count - fresh, span)]) if fresh < count else starts

    def reset(self, first: int, total: int) -> None:
        self.row, self.env = total, 0

    def state(self) -> dict[str, Any]:
        return {"row": self.row, "env": self.env}

    def restore(self, saved: dict[str, Any]) -> None:
        self.row, self.env = saved["row"], saved["env"]


class Newest(Selector):
    """The newest starts there are: as many as there are environments are the newest window of each."""

    def pick(self, count: int, span: Span) -> Tensor:
        return torch.arange(span.starts - count, span.starts, device=self.ring.device) + span.lowest


class Streams(Uniform):
    """Each place of the batch reads on where its last window ended (truncated back-propagation through time).

    Where the next window is not complete yet, or its rows are overwritten, the place starts anew anywhere. The column
    `continues` tells which places went on, so that the state carried from the last window holds there.
    """

    def __init__(self, ring: Ring, weighting: Weighting) -> None:
        super().__init__(ring, weighting)
        self.next = torch.empty(0, dtype=torch.int64, device=ring.device)
        self.continues = torch.empty(0, dtype=torch.bool, device=ring.device)

    def pick(self, count: int, span: Span) -> Tensor:
        anew = super().pick(count, span)
        following = self.next if len(self.next) == count else torch.full_like(anew, -1)
        self.continues = (following >= span.lowest) & (following < span.lowest + span.starts)
        starts = torch.where(self.continues, following, anew)
        self.next = starts + (span.length - self.ring.context) * self.ring.envs
        return starts

    def extras(self) -> Batch:
        return {"continues": self.continues}

    def reset(self, first: int, total: int) -> None:
        self.next = self.next[:0]

    def state(self) -> dict[str, Any]:
        return {"next": self.next}

    def restore(self, saved: dict[str, Any]) -> None:
        self.next = saved["next"].to(self.ring.device)
