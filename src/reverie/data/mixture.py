"""Several ways of selecting windows in one batch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..config.errors import UserError, nearest
from .select import Online, Prioritised, Recent, Ring, Selector, Span, Streams, Uniform, Weighting

SELECTORS: dict[str, type[Selector]] = {
    "uniform": Uniform,
    "recent": Recent,
    "prioritised": Prioritised,
    "online": Online,
    "streams": Streams,
}


class Mixture(Selector):
    """Several selectors, each for its part of every batch; parts that are no whole windows even out over time."""

    def __init__(self, ring: Ring, weighting: Weighting, fractions: dict[str, float]) -> None:
        super().__init__(ring, weighting)
        whole = sum(fractions.values())
        self.fractions = {name: part / whole for name, part in fractions.items() if part > 0}
        self.parts = {name: SELECTORS[name](ring, weighting) for name in self.fractions}
        self.owed = dict.fromkeys(self.fractions, 0.0)

    def counts(self, batch: int) -> dict[str, int]:
        """Windows of the next batch for each selector: whole parts, and the rest to those owed most."""
        counts = {name: math.floor(part * batch) for name, part in self.fractions.items()}
        for name, part in self.fractions.items():
            self.owed[name] += part * batch - counts[name]
        for _ in range(batch - sum(counts.values())):
            name = max(self.owed, key=lambda each: self.owed[each])
            counts[name] += 1
            self.owed[name] -= 1
        return counts

    def pick(self, count: int, span: Span) -> Tensor:
        picked = [self.parts[name].pick(part, span) for name, part in self.counts(count).items() if part]
        return picked[0] if len(picked) == 1 else torch.cat(picked)

    def added(self, start: int, stop: int) -> None:
        for part in self.parts.values():
            part.added(start, stop)

    def prioritise(self, slots: Tensor, priority: Tensor, held: Tensor) -> None:
        for part in self.parts.values():
            part.prioritise(slots, priority, held)

    def reset(self, first: int, total: int) -> None:
        for part in self.parts.values():
            part.reset(first, total)

    def state(self) -> dict[str, Any]:
        return {"owed": dict(self.owed), "parts": {name: part.state() for name, part in self.parts.items()}}

    def restore(self, saved: dict[str, Any]) -> None:
        self.owed = {name: saved["owed"][name] for name in self.fractions}
        for name, part in self.parts.items():
            part.restore(saved["parts"][name])


def selection(fractions: dict[str, float], ring: Ring, weighting: Weighting) -> Selector:
    """The selector that the names and their fractions ask for."""
    for name, part in fractions.items():
        if name not in SELECTORS:
            raise UserError(f"no replay selector {name!r}: {nearest(name, SELECTORS)}")
        if not 0 <= part < math.inf:
            raise UserError(f"the replay selector {name} has the fraction {part}: give a number from 0 up")
    used = {name for name, part in fractions.items() if part > 0}
    if not used:
        raise UserError(f"no replay selector has a part of the batch: give one of {', '.join(SELECTORS)} a fraction")
    if "streams" in used and len(used) > 1:
        raise UserError("the replay selector streams cannot be mixed: give it alone, or leave it out")
    return Streams(ring, weighting) if "streams" in used else Mixture(ring, weighting, fractions)
