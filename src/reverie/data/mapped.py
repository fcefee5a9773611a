"""Columns as files that are mapped into memory: what is written stays there, and a resumed run opens it in place."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from urllib.parse import quote

import torch
from torch import Tensor

from ..config.errors import UserError
from ..config.whole import write_whole
from .rows import Batch
from .storage import Layout, parsed, plain

LAYOUT = "layout.json"
MARK = "rows"
"""File with the number of rows ever written, which outlives a run that dies between two checkpoints."""


class Mapped:
    """A folder with one file per column, a description of them and a mark of how far they were ever written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark: Tensor | None = None
        self.written = 0

    @property
    def present(self) -> bool:
        """Whether there is something to open."""
        return (self.folder / LAYOUT).exists()

    def create(self, layout: Layout, rows: int, envs: int) -> Batch:
        """Columns (rows, envs, ...) for a new run; files left by another one are written over."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for old in self.folder.glob("*.bin"):
                old.unlink()
            described = {"rows": rows, "envs": envs, "columns": plain(layout)}
            write_whole(self.folder / LAYOUT, lambda file: file.write(json.dumps(described).encode()))
        except OSError as error:
            raise UserError(f"cannot keep the replay in {self.folder}: {error.strerror or error}") from error
        self.mark = torch.from_file(str(self.folder / MARK), shared=True, size=1, dtype=torch.int64)
        return self._columns(layout, rows, envs)

    def open(self, rows: int, envs: int) -> tuple[Layout, Batch]:
        """Layout and columns as another run left them."""
        try:
            described = json.loads((self.folder / LAYOUT).read_text())
            layout = parsed(described["columns"])
            found = described["rows"], described["envs"]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.folder} holds no replay that can be opened: start a new --logdir") from error
        if found != (rows, envs):
            raise UserError(
                f"the replay in {self.folder} has {found[0]} rows of {found[1]} environments, not {rows} of {envs}: "
                "resume with the --replay.capacity and --envs.count it was made with"
            )
        for name, (shape, dtype) in layout.items():
            path, size = self._path(name), rows * envs * math.prod(shape) * dtype.itemsize
            if not path.exists() or path.stat().st_size < size:
                raise UserError(f"{path} is missing or cut short: start a new --logdir")
        self.mark = torch.from_file(str(self.folder / MARK), shared=True, size=1, dtype=torch.int64)
        self.written = int(self.mark)
        return layout, self._columns(layout, rows, envs)

    def announce(self, total: int) -> None:
        """Say how far rows are about to be written; called before, so that a run that dies writing has said so."""
        assert self.mark is not None
        self.written = max(self.written, total)
        self.mark.fill_(self.written)

    def flush(self) -> None:
        """Wait until everything is on the disk, should the machine stop."""
        for path in (self.folder / MARK, *self.folder.glob("*.bin")):
            if path.exists():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())

    def _columns(self, layout: Layout, rows: int, envs: int) -> Batch:
        sizes = {name: (rows, envs, *shape) for name, (shape, _) in layout.items()}
        return {
            name: torch.from_file(str(self._path(name)), shared=True, size=math.prod(sizes[name]), dtype=dtype).view(
                sizes[name]
            )
            for name, (_, dtype) in layout.items()
        }

    def _path(self, name: str) -> Path:
        return self.folder / f"{quote(name, safe='')}.bin"
