"""From the rows of N environments, as they come, to whole episodes in a store."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .episode_file import foreign, note
from .episodes import EpisodeStore
from .rows import Rows

if TYPE_CHECKING:  # who brings arrays needs no torch
    from torch import Tensor

LEARNERS = ("deter", "stoch", "value")
"""Columns that belong to a learner and grow old with its weights."""
SMALLEST = 64


class EpisodeWriter:
    """Writes each environment's episode when its last row has come.

    Rows before the first `is_first` of an environment are passed over: their episode began elsewhere. A first row that
    follows no last one, as after a resume that could not go on, ends the episode before it like a time-out. An episode
    without a single step is none.
    """

    def __init__(self, store: EpisodeStore, left_out: tuple[str, ...] = LEARNERS) -> None:
        self.store, self.left_out = store, left_out
        self.drafts: list[Draft] = []
        self.whole: list[Rows] = []
        """Episodes that have ended and are not written yet."""

    def step(self, rows: Mapping[str, np.ndarray | Tensor]) -> list[str]:
        """Take one row of each environment (N, ...); the names of the episodes that it ended."""
        return self.add({name: value[None] for name, value in rows.items()})

    def add(self, rows: Mapping[str, np.ndarray | Tensor]) -> list[str]:
        """Take rows (T, N, ...) that were acted upon, in order; the names of the episodes that they ended."""
        arrays = {name: array_of(value) for name, value in rows.items() if name not in self.left_out}
        count = arrays["is_last"].shape[1]
        self.drafts = self.drafts or [Draft() for _ in range(count)]
        if len(self.drafts) != count:
            raise ValueError(f"rows of {count} environments for a writer of {len(self.drafts)}")
        ended: list[tuple[int, Rows]] = []
        for env in range(count):
            ended += self._take(env, {name: value[:, env] for name, value in arrays.items()})
        self.whole += [episode for _, episode in sorted(ended, key=lambda pair: pair[0])]
        return self.flush()

    def _take(self, env: int, rows: Rows) -> list[tuple[int, Rows]]:
        """The episodes that rows (T, ...) of one environment end, each with the row that did."""
        first, last = rows["is_first"], rows["is_last"]
        starts = first.copy()
        starts[1:] |= last[:-1]
        edges = [0, *(np.flatnonzero(starts[1:]) + 1).tolist(), len(last)]
        ended: list[tuple[int, Rows]] = []
        for start, stop in pairwise(edges):
            if first[start]:
                ended += self._end(env, start)
            elif not self.drafts[env].length:
                continue
            self.drafts[env].extend({name: value[start:stop] for name, value in rows.items()})
            if last[stop - 1]:
                ended += self._end(env, stop - 1)
        return ended

    def _end(self, env: int, row: int) -> list[tuple[int, Rows]]:
        """What an environment has shown of its episode, which is over."""
        episode, length = self.drafts[env].rows(), self.drafts[env].length
        self.drafts[env] = Draft()
        if length < 2:
            return []
        episode["is_last"][-1] = True
        return [(row, episode)]

    def flush(self) -> list[str]:
        """Write the episodes that have ended, also those whose writing failed before; their names."""
        names = []
        while self.whole:
            names.append(self.store.write(self.whole[0]))
            del self.whole[0]
        return names

    def state(self) -> dict[str, Any]:
        """What `restore` goes on from: the rows of unfinished episodes, as plain dicts, lists and arrays."""
        unfinished = [draft.rows() for draft in self.drafts]
        return {"drafts": [_plain(rows) for rows in unfinished], "whole": [_plain(rows) for rows in self.whole]}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on where `state` was taken; arrays may have become tensors on the way."""
        self.drafts = []
        for each in saved["drafts"]:
            draft = Draft()
            if each["rows"]:
                draft.extend(_noted(each))
            self.drafts.append(draft)
        self.whole = [_noted(each) for each in saved["whole"]]


class Draft:
    """The rows of an unfinished episode, in arrays that double as they fill."""

    def __init__(self) -> None:
        self.columns: Rows = {}
        self.length = 0

    def extend(self, rows: Rows) -> None:
        """Append a copy of rows (T, ...); the first ones decide what the columns are."""
        stop = self.length + len(rows["is_last"])
        if not self.columns or stop > len(self.columns["is_last"]):
            self._grow(max(SMALLEST, 2 * self.length, stop), rows)
        if rows.keys() != self.columns.keys():
            raise ValueError(f"rows with {sorted(rows)} after rows with {sorted(self.columns)}")
        for name, value in rows.items():
            self.columns[name][self.length : stop] = value
        self.length = stop

    def _grow(self, size: int, rows: Rows) -> None:
        held = self.columns or {name: value[:0] for name, value in rows.items()}
        self.columns = {name: np.empty((size, *value.shape[1:]), value.dtype) for name, value in held.items()}
        for name, value in held.items():
            self.columns[name][: self.length] = value[: self.length]

    def rows(self) -> Rows:
        """The rows so far (T, ...), as views."""
        return {name: value[: self.length] for name, value in self.columns.items()} if self.length else {}


def array_of(value: np.ndarray | Tensor) -> np.ndarray:
    """The same as an array; a dtype that numpy lacks as its bits, under its name."""
    if isinstance(value, np.ndarray):
        return value
    from . import storage

    array = storage.array_of(value.cpu())
    if value.dtype not in storage.FOREIGN:
        return array
    return np.ascontiguousarray(array).view(note(str(value.dtype).removeprefix("torch.")))


def _plain(rows: Rows) -> dict[str, Any]:
    """Copies with bits as numbers, since files of tensors know no fields, and what they are the bits of."""
    words = {name: foreign(value.dtype) for name, value in rows.items() if foreign(value.dtype)}
    plain = {name: (value[words[name]] if name in words else value).copy() for name, value in rows.items()}
    return {"rows": plain, "foreign": words}


def _noted(saved: dict[str, Any]) -> Rows:
    """What `_plain` was made of."""
    rows = {name: np.array(value) for name, value in saved["rows"].items()}
    return rows | {name: rows[name].view(note(word)) for name, word in saved["foreign"].items()}
