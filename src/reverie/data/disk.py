"""Saving the rows of a replay for a resumed run: append-only files, and latents whole.

Columns that never change are written once, a file or more per save, and deleted when the rings have overwritten them.
Columns that were ever written back (latents) change all over the rings between two saves, so each save writes them
whole; that makes a resumed run equal to one that never stopped. The two last saves can be loaded: a run that dies after
a save, before the checkpoint that belongs to it, goes on from the one before. Files appear whole or not at all, the
index last.
"""

from __future__ import annotations

import json
import logging
import zipfile
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..config.errors import UserError
from ..config.whole import reason, write_whole
from .replay import Replay
from .rows import Batch
from .storage import FOREIGN, Layout, array_of, bytes_per_step, parsed, plain

INDEX = "index.json"
FORMAT = 1
PREFIX = "column."
"""Before the names of columns in a file, where `file` would not do as a name."""
FILE_BYTES = 1 << 25
"""About the size of a file: a load holds one at a time beside the replay, so that it takes little more memory."""
LOGGER = logging.getLogger("reverie")


class Segment(NamedTuple):
    """A file with some columns of the rows from `start` to `stop`."""

    file: str
    start: int
    stop: int
    columns: list[str]


class Save(NamedTuple):
    """What was held when it was saved, and its latents."""

    first: int
    total: int
    latents: list[Segment]


class Archive:
    """The folder that a replay is saved into and loaded from.

    Save the replay first, then a checkpoint with `replay.state()`. With `exact` off latents are written once with their
    rows, as they were then: much less to write for large models, and a resumed run learns from older latents.
    """

    def __init__(self, folder: Path, exact: bool = True, file_bytes: int = FILE_BYTES) -> None:
        self.folder, self.exact, self.file_bytes = folder, exact, file_bytes
        self.chunks: list[Segment] = []
        self.saves: list[Save] = []
        self.number = 0

    def save(self, replay: Replay) -> None:
        """Write what is new. A replay on disk is its own save and is only flushed."""
        replay.settle()
        try:
            if replay.mapped is not None:
                replay.mapped.flush()
            else:
                self._save(replay)
        except OSError as error:
            raise UserError(
                f"cannot save the replay in {self.folder}: {reason(error)}: make room, then --resume; "
                "the save before it is kept"
            ) from error

    def _save(self, replay: Replay) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        number = max([self.number, *self._numbers()]) + 1
        changing = {name: replay.layout[name] for name in replay.layout if self.exact and name in replay.mutable}
        fixed = {name: replay.layout[name] for name in replay.layout if name not in changing}
        begin = max(replay.first, self.chunks[-1].stop if self.chunks else 0)
        chunks = self.chunks + self._write(f"rows-{number:06d}", replay, fixed, begin)
        latents = self._write(f"latents-{number:06d}", replay, changing, replay.first)
        saves = [*self.saves[-1:], Save(replay.first, replay.total, latents)]
        chunks = [chunk for chunk in chunks if chunk.stop > min(save.first for save in saves)]
        index = {
            "format": FORMAT,
            "envs": replay.envs,
            "columns": plain(replay.layout),
            "chunks": chunks,
            "saves": saves,
        }
        write_whole(self.folder / INDEX, lambda file: file.write(json.dumps(index).encode()))
        self.chunks, self.saves, self.number = chunks, saves, number
        self._clean()

    def _write(self, stem: str, replay: Replay, layout: Layout, start: int) -> list[Segment]:
        """Files with these columns of the rows from `start` to the newest."""
        segments: list[Segment] = []
        most = max(1, self.file_bytes // max(1, bytes_per_step(layout) * replay.envs))
        while layout and start < replay.total:
            slot = start % replay.rows
            stop = min(start + most, replay.total, start + replay.rows - slot)
            views = {name: replay.columns[name][slot : slot + stop - start] for name in layout}
            segment = Segment(f"{stem}-{len(segments):04d}.npz", start, stop, list(layout))
            write_whole(self.folder / segment.file, partial(_write_columns, views))
            segments.append(segment)
            start = stop
        return segments

    def _numbers(self) -> list[int]:
        return [int(each.name.split("-")[1]) for each in self.folder.glob("*-*-*.npz")]

    def _clean(self) -> None:
        """Delete the files that no save needs."""
        used = {each.file for each in [*self.chunks, *(each for save in self.saves for each in save.latents)]}
        for path in self.folder.glob("*-*-*.npz*"):
            if path.name not in used:
                path.unlink()

    def load(self, replay: Replay, saved: dict[str, Any]) -> int:
        """Bring a replay to where `saved`, its state, was taken; how many files could not be read.

        Rows of files that are damaged or missing are left out, with a warning: the rows on both sides become the end
        and the start of an episode, and selectors start over. Latents that cannot be read are 0.
        """
        if replay.mapped is not None and replay.mapped.present:
            replay.restore(saved)
            return 0
        index = self._index(replay) if replay.mapped is None else None
        replay.restore(saved)
        if index is None:
            return self._start_empty(replay)
        saves = [Save(first, total, [Segment(*each) for each in latents]) for first, total, latents in index["saves"]]
        chunks = [Segment(*each) for each in index["chunks"]]
        if index["columns"]:
            replay.allocate(parsed(index["columns"]))
        loading = _Loading(self.folder, replay)
        save = next((each for each in reversed(saves) if each.total == saved["total"]), saves[-1])
        loading.rows(chunks, save, saved["total"])
        loading.latents(save)
        replay.seal()
        if replay.total == saved["total"] and not loading.lost:
            self.chunks = [chunk for chunk in chunks if chunk.start < replay.total]
            self.saves = [save]
        else:
            replay.selection.reset(replay.first, replay.total)  # chunks stay forgotten: the next save writes all anew
            self._warn(f"is not complete (damaged or missing: {', '.join(loading.lost) or 'whole files'})", replay)
        return len(loading.lost)

    def _start_empty(self, replay: Replay) -> int:
        total = replay.total
        replay.start_over(total)
        replay.selection.reset(total, total)
        if total:
            self._warn("is gone", replay)
        return 0

    def _warn(self, what: str, replay: Replay) -> None:
        LOGGER.warning("the replay in %s %s: going on with %s steps", self.folder, what, f"{len(replay):,}")

    def _index(self, replay: Replay) -> dict[str, Any] | None:
        """What the folder holds; None where that cannot be known."""
        try:
            index = json.loads((self.folder / INDEX).read_text())
            if index["format"] != FORMAT or not index["saves"]:
                return None
        except (OSError, KeyError, TypeError, ValueError):
            return None
        if index["envs"] != replay.envs:
            raise UserError(
                f"the replay in {self.folder} is of {index['envs']} environments, not {replay.envs}: "
                f"resume with --envs.count {index['envs']}"
            )
        return index


class _Loading:
    """One load: where rows went and what could not be read."""

    def __init__(self, folder: Path, replay: Replay) -> None:
        self.folder, self.replay = folder, replay
        self.lost: list[str] = []
        self.placed: list[tuple[int, int, int]] = []
        """Rows from, to, and the row that the first of them became."""

    def rows(self, chunks: list[Segment], save: Save, total: int) -> None:
        """Append the rows of a save that can be read, file by file; rows up to `total` were there once."""
        severed = self.replay.severed
        self.replay.start_over(save.first)
        follows = save.first
        for chunk in chunks:
            start, stop = max(chunk.start, save.first), min(chunk.stop, save.total)
            if start < stop and self._place(chunk, start, stop, follows):
                follows = stop
        self.replay.severed = severed
        if follows != total:
            self.replay.sever()

    def _place(self, chunk: Segment, start: int, stop: int, follows: int) -> bool:
        """Append the rows of a file from `start` to `stop`, unless it cannot be read; `follows` is the row expected."""
        columns = self._read(chunk)
        if columns is None:
            return False
        if start != follows:
            self.replay.sever()
        self.placed.append((start, stop, self.replay.total))
        self.replay.append(self._complete(columns, start - chunk.start, stop - chunk.start))
        return True

    def latents(self, save: Save) -> None:
        """Write the latents of the rows that were placed."""
        for segment in save.latents:
            self._renew(segment, self._read(segment) or {})

    def _renew(self, segment: Segment, columns: Batch) -> None:
        """Write the columns of a file over the rows that were placed."""
        for start, stop, row in self.placed:
            low, high = max(start, segment.start, start + self.replay.first - row), min(stop, segment.stop)
            if columns and low < high:
                part = slice(low - segment.start, high - segment.start)
                self.replay.write(row + low - start, {name: value[part] for name, value in columns.items()})

    def _complete(self, columns: Batch, start: int, stop: int) -> Batch:
        """Some rows of a file with all columns; those it does not have, latents, are 0."""
        size = (stop - start, self.replay.envs)
        return {
            name: columns[name][start:stop] if name in columns else torch.zeros((*size, *shape), dtype=dtype)
            for name, (shape, dtype) in self.replay.layout.items()
        }

    def _read(self, segment: Segment) -> Batch | None:
        """The columns in a file; None, and the file noted, where they are not whole."""
        try:
            with open(self.folder / segment.file, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                return {name: self._column(file[PREFIX + name], name, segment) for name in segment.columns}
        except (OSError, EOFError, KeyError, RuntimeError, ValueError, zipfile.BadZipFile):
            self.lost.append(segment.file)
            return None

    def _column(self, array: np.ndarray, name: str, segment: Segment) -> Tensor:
        shape, dtype = self.replay.layout[name]
        tensor = torch.from_numpy(array)
        tensor = tensor.view(dtype) if dtype in FOREIGN else tensor
        if tensor.shape != (segment.stop - segment.start, self.replay.envs, *shape) or tensor.dtype != dtype:
            raise ValueError(f"column {name} is not what was saved")
        return tensor


def _write_columns(columns: Batch, file: IO[bytes]) -> None:
    arrays: dict[str, Any] = {PREFIX + name: array_of(value.cpu()) for name, value in columns.items()}
    np.savez(file, **arrays)
