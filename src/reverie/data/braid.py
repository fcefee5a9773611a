"""Episodes laid one behind the other into N streams: blocks of rows that a replay takes."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor

from ..config.errors import UserError
from .episode_file import foreign
from .rows import Batch, Rows
from .storage import Layout

LATENTS = ("deter", "stoch")
"""Columns that episodes need not have: a learner writes its own."""


class Braid:
    """N streams of equal standing; an episode joins the shortest one, and a block is what all of them have.

    The rest of longer streams waits and goes on in the next block, so that no episode is cut in a replay that gets
    block after block. Columns of `fill` that an episode lacks are 0; those that the layout lacks are left out.
    """

    def __init__(self, layout: Layout, streams: int, fill: tuple[str, ...] = LATENTS) -> None:
        self.layout, self.fill = layout, fill
        self.streams: list[deque[Batch]] = [deque() for _ in range(streams)]
        self.lengths = [0] * streams
        """Rows that wait in each stream."""

    def add(self, episode: Rows, name: str = "an episode") -> None:
        """Lay an episode behind the shortest stream, the first of several."""
        stream = self.lengths.index(min(self.lengths))
        self._append(stream, self._fitted(episode, name))

    def block(self) -> Batch | None:
        """The next rows (T, N, ...), as many as all streams have; None if one has none."""
        count = min(self.lengths)
        if not count:
            return None
        parts = [self._taken(stream, count) for stream in range(len(self.streams))]
        return {name: torch.stack([part[name] for part in parts], 1) for name in self.layout}

    def last_block(self) -> Batch | None:
        """All that waits, for a store that grows no more, less than one row of each stream excepted; None if no more.

        What is too much in a stream goes to those that have too little. Where that cuts an episode, its halves become
        episodes, the first of which ends as by a time-out.
        """
        count = sum(self.lengths) // len(self.streams)
        spare: deque[Batch] = deque()
        for stream, length in enumerate(self.lengths):
            if length > count:
                kept = self._taken(stream, count) if count else None
                spare += self._severed(stream, kept)
                self._empty(stream)
                if kept is not None:
                    self._append(stream, kept)
        for stream in range(len(self.streams)):
            while self.lengths[stream] < count:
                piece = spare.popleft()
                room = count - self.lengths[stream]
                if _rows(piece) > room:
                    piece, rest = _halves(piece, room)
                    spare.appendleft(rest)
                self._append(stream, piece)
        return self.block()

    def _severed(self, stream: int, kept: Batch | None) -> list[Batch]:
        """What waits in a stream behind the rows that stay, beginning as an episode of its own."""
        pieces = list(self.streams[stream])
        if pieces and not bool(pieces[0]["is_first"][0]):
            pieces[0] = _marked(pieces[0], "is_first", 0)
            if kept is not None:
                kept["is_last"][-1] = True
        return pieces

    def _append(self, stream: int, piece: Batch) -> None:
        self.streams[stream].append(piece)
        self.lengths[stream] += _rows(piece)

    def _empty(self, stream: int) -> None:
        self.streams[stream].clear()
        self.lengths[stream] = 0

    def _taken(self, stream: int, count: int) -> Batch:
        """The next rows of one stream, as a copy, off the stream."""
        parts: list[Batch] = []
        waiting = self.streams[stream]
        self.lengths[stream] -= count
        while count:
            piece = waiting.popleft()
            if _rows(piece) > count:
                waiting.appendleft({name: value[count:] for name, value in piece.items()})
                piece = {name: value[:count] for name, value in piece.items()}
            parts.append(piece)
            count -= _rows(piece)
        return {name: torch.cat([part[name] for part in parts]) for name in self.layout}

    def _fitted(self, episode: Rows, name: str) -> Batch:
        """The columns of the layout as tensors."""
        rows = len(episode["is_last"])
        fitted: Batch = {}
        for column, (shape, dtype) in self.layout.items():
            if column not in episode and column in self.fill:
                fitted[column] = torch.zeros((rows, *shape), dtype=dtype)
                continue
            value = tensor_of(episode[column]) if column in episode else None
            if value is None or value.shape[1:] != shape or value.dtype != dtype:
                found = "no" if value is None else f"{_word(value.dtype)} {tuple(value.shape[1:])} as"
                raise UserError(
                    f"{name} has {found} {column}, this run needs {_word(dtype)} {shape}: use episodes of the same task"
                )
            fitted[column] = value
        return fitted


def tensor_of(array: np.ndarray) -> Tensor:
    """The same as a tensor; bits that are kept under the name of a dtype become that dtype."""
    word = foreign(array.dtype)
    return torch.from_numpy(array[word]).view(getattr(torch, word)) if word else torch.from_numpy(array)


def _rows(piece: Batch) -> int:
    return len(piece["is_last"])


def _halves(piece: Batch, count: int) -> tuple[Batch, Batch]:
    """The first rows of a piece and the others, as two episodes."""
    left = {name: value[:count] for name, value in piece.items()}
    right = {name: value[count:] for name, value in piece.items()}
    return _marked(left, "is_last", -1), _marked(right, "is_first", 0)


def _marked(piece: Batch, flag: str, row: int) -> Batch:
    """The piece with a flag set in one row; the one it was made of stays as it is."""
    column = piece[flag].clone()
    column[row] = True
    return piece | {flag: column}


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
