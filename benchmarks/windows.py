"""Windows of recorded rows, drawn alike by every program that reads them; for same_rows.py and its peer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

Rows = dict[str, np.ndarray]

BATCH, LENGTH = 16, 16
LR, WARMUP = 3e-4, 100
LOOKED_AT = 256


class Windows:
    """Windows of rows (T, N, ...) in a file: the first two thirds are learned from, the others kept back."""

    def __init__(self, path: Path) -> None:
        self.rows: Rows = dict(np.load(path))
        count = len(self.rows["reward"])
        self.parts = {"learned": (0, count * 2 // 3), "kept": (count * 2 // 3, count)}

    def batches(self) -> Iterator[Rows]:
        """Batches (B, T, ...) to learn from, without end."""
        random = np.random.default_rng(0)
        while True:
            yield self._drawn("learned", BATCH, random)

    def looked_at(self) -> dict[str, Rows]:
        """Windows (B, T, ...) of both parts to take losses of."""
        return {part: self._drawn(part, LOOKED_AT, np.random.default_rng(1)) for part in self.parts}

    def _drawn(self, part: str, count: int, random: np.random.Generator) -> Rows:
        first, last = self.parts[part]
        start = random.integers(first, last - LENGTH + 1, count)[:, None] + np.arange(LENGTH)
        env = random.integers(self.rows["reward"].shape[1], size=(count, 1))
        return {name: value[start, env] for name, value in self.rows.items()}
