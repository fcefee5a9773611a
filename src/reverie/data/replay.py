"""The replay: rings of rows, one per environment, all filled in step; windows of them; write-back of latents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..config.errors import UserError
from .mapped import Mapped
from .mixture import selection
from .rows import Batch, Rows
from .select import Ring, Selector, Span, Weighting
from .storage import Layout, Storage, array_of, check_fit, layout_of, new_column, place_of, rows_of

ADDED = ("index", "continues")
"""Columns of a sample that no rows may have."""


class Replay:
    """Rows of N environments by column (rows, N, ...), kept with the dtypes they come with.

    Rows are counted from the first one ever added; row r lies in slot r % rows. Held are the rows from `first` up to
    `total`. Windows never cross the seam between the newest and the oldest row; they may cross ends of episodes.
    """

    def __init__(
        self,
        envs: int,
        capacity: int,
        *,
        device: torch.device,
        selectors: dict[str, float],
        storage: Storage = "ram",
        folder: Path | None = None,
        seed: int = 0,
        context: int = 0,
        weighting: Weighting = Weighting(),  # noqa: B008  frozen
    ) -> None:
        if storage == "disk" and folder is None:
            raise ValueError("a replay on disk needs a folder")
        self.envs, self.capacity, self.rows = envs, capacity, rows_of(capacity, envs)
        self.storage, self.device, self.folder = storage, device, folder
        self.place = place_of(storage, device)
        generator = torch.Generator(self.place).manual_seed(seed)
        self.ring = Ring(envs, self.rows, generator, context)
        self.selection = selection(selectors, self.ring, weighting)
        self.columns: Batch = {}
        self.flat: Batch = {}
        self.arrays: Rows = {}
        """The columns' own memory, on the CPU."""
        self.layout: Layout = {}
        self.mutable: set[str] = set()
        """Columns that were ever written back."""
        self.total = self.first = 0
        self.severed = False
        """Whether the next row does not follow the newest one, since rows between them were lost."""
        self.mapped = Mapped(folder) if storage == "disk" and folder is not None else None
        self.pending: tuple[Tensor, Batch, torch.cuda.Event] | None = None

    def __len__(self) -> int:
        """Steps held, over all environments."""
        return (self.total - self.first) * self.envs

    def ready(self, batch: int, length: int) -> bool:
        """Whether there are as many different windows as a batch has, or as the replay can ever hold."""
        if length > self.rows:
            raise UserError(
                f"--replay.capacity {self.capacity} over {self.envs} environments keeps {self.rows} rows of each, "
                f"fewer than the {length} of a window: raise it to at least {length * self.envs}"
            )
        most = (self.rows - length + 1) * self.envs
        return self._span(length).starts >= min(batch, most)

    @torch.no_grad()
    def add(self, rows: Batch) -> None:
        """Append rows (T, N, ...) of all environments, in order; the first ones decide what the columns are."""
        if not self.columns:
            self.allocate(layout_of(rows))
        start = self.total
        self.append(rows)
        self.selection.added(max(start, self.total - self.rows), self.total)

    def append(self, rows: Batch) -> None:
        """Write rows behind the newest one, past the selectors."""
        count = self._checked(rows)
        if self.mapped is not None:
            self.mapped.announce(self.total + count)
        skipped = max(0, count - self.rows)  # those that the same rows would overwrite
        kept = {name: value[skipped:] for name, value in rows.items()} if skipped else rows
        self.write(self.total + skipped, kept)
        if self.severed and "is_first" in self.columns:
            self.columns["is_first"][(self.total + skipped) % self.rows] = True
        self.severed = False
        self.total += count
        self.first = max(self.first, self.total - self.rows)

    def write(self, start: int, rows: Batch) -> None:
        """Write some columns of the rows from `start` on."""
        count = len(next(iter(rows.values())))
        slot = start % self.rows
        head = min(count, self.rows - slot)
        for name, value in rows.items():
            # arrays on the CPU: torch would wake its threads for an image, and acting would wait for them
            # a GPU takes rows over first, so that page-locked columns are written by its own copies
            target: Any = self.arrays.get(name, self.columns[name])
            source: Any = array_of(value.cpu()) if self.arrays else value.to(self.place)
            target[slot : slot + head] = source[:head]
            if head < count:
                target[: count - head] = source[head:]

    def sever(self, envs: Sequence[int] | None = None) -> None:
        """Make the newest row the last of its episode, as by a time-out: the rows that followed it are lost.

        In single environments the rows to come must begin an episode; where it is all of them they are made to.
        """
        if self.total > self.first:
            self.severed = self.severed or envs is None
            if "is_last" in self.columns:
                self.columns["is_last"][(self.total - 1) % self.rows, slice(None) if envs is None else list(envs)] = (
                    True
                )

    def seal(self) -> None:
        """Make every row before a first one the last of its episode: a file may be older than what severed them."""
        if {"is_first", "is_last"} <= self.columns.keys():
            slots = torch.arange(self.first, self.total, device=self.place) % self.rows
            self.columns["is_last"][slots[:-1]] |= self.columns["is_first"][slots[1:]]

    @torch.no_grad()
    def sample(self, batch: int, length: int, selection: Selector | None = None) -> Batch:
        """Windows (B, length, ...) on the device, `index` (B, length) for `update`; streams add `continues` (B,).

        A selection other than the replay's own looks at the rows without counting as training.
        """
        selection = selection or self.selection
        self.settle()
        span = self._span(length)
        if span.windows < 1 or self.ring.context >= length:
            raise ValueError(f"no window of {length} rows in the {self.total - self.first} held")
        starts = selection.pick(batch, span)
        index = starts[:, None] + torch.arange(length, device=self.place) * self.envs  # B, T
        return (
            self.at(index)
            | {name: value.to(self.device) for name, value in selection.extras().items()}
            | {"index": index.to(self.device)}
        )

    def at(self, index: Tensor) -> Batch:
        """The rows (B, T, ...) at steps (B, T), on the device; where one was overwritten, what lies there now."""
        self.settle()
        slots = (index % self.ring.slots).flatten()
        return {name: self._gathered(flat, slots).unflatten(0, index.shape) for name, flat in self.flat.items()}

    def held(self, index: Tensor) -> Tensor:
        """Which steps have not been overwritten."""
        return index >= self.first * self.envs

    @torch.no_grad()
    def update(self, index: Tensor, values: Batch) -> None:
        """Write values (B, T, ...) back to the steps of `index` (B, T), as `sample` gave it; `priority` is one of them.

        Steps that were overwritten since are left alone, so an update may come late. Of a step that is in several
        windows the last one counts. From a GPU to RAM the values are on their way until the next sample needs them.
        """
        self.settle()
        unknown = values.keys() - self.columns.keys() - {"priority"}
        if unknown:
            raise ValueError(f"no column {', '.join(sorted(unknown))} in the replay")
        values = {name: value.flatten(0, 1) for name, value in values.items()}
        self.mutable |= values.keys() & self.columns.keys()
        if self.place.type == "cpu" and index.device.type == "cuda":
            staged = {name: _on_its_way(value) for name, value in (values | {"index": index.flatten()}).items()}
            event = torch.cuda.Event()
            event.record()
            self.pending = staged.pop("index"), staged, event
        else:
            self._write_back(index.flatten().to(self.place), values)

    def settle(self) -> None:
        """Wait for values on their way from the GPU and write them."""
        if self.pending is not None:
            index, values, event = self.pending
            self.pending = None
            event.synchronize()
            self._write_back(index, values)

    def _write_back(self, index: Tensor, values: Batch) -> None:
        slots = index % self.ring.slots
        held = self.held(index)
        source = _last_of_equals(slots)
        for name, value in values.items():
            value = value.to(self.place).index_select(0, source)
            if name == "priority":
                self.selection.prioritise(slots, value, held)
            if name in self.columns:
                flat = self.flat[name]
                value = value.to(flat.dtype)
                if self.first:  # only then can a step have been overwritten
                    mask = held.view(-1, *[1] * (value.dim() - 1))
                    value = torch.where(mask, value, flat.index_select(0, slots))
                flat.index_copy_(0, slots, value)

    def _gathered(self, flat: Tensor, slots: Tensor) -> Tensor:
        """The steps in these slots, on the device."""
        if self.place == self.device or self.device.type != "cuda":
            return flat.index_select(0, slots).to(self.device)
        # page-locked memory is torch's to reuse only when the copy has been made
        staging = torch.empty((len(slots), *flat.shape[1:]), dtype=flat.dtype, pin_memory=True)
        torch.index_select(flat, 0, slots, out=staging)
        return staging.to(self.device, non_blocking=True)

    def _span(self, length: int) -> Span:
        return Span(self.ring, self.first, self.total, length, self.flat.get("is_last"))

    def _checked(self, rows: Batch) -> int:
        """How many rows these are; an error where they do not fit the columns."""
        if rows.keys() != self.columns.keys():
            raise ValueError(f"rows with {sorted(rows)} for a replay of {sorted(self.columns)}")
        count = len(next(iter(rows.values())))
        for name, value in rows.items():
            shape, dtype = self.layout[name]
            if value.shape != (count, self.envs, *shape) or value.dtype != dtype:
                raise ValueError(
                    f"{name} is {value.dtype} {tuple(value.shape)}, not {dtype} {(count, self.envs, *shape)}"
                )
        return count

    def allocate(self, layout: Layout) -> None:
        """Make the columns; refused where they would not fit when full."""
        if taken := layout.keys() & set(ADDED):
            raise ValueError(f"the replay adds {', '.join(sorted(taken))} itself")
        check_fit(layout, self.capacity, self.envs, self.storage, self.device, self.folder)
        if self.mapped is not None:
            self._adopt(layout, self.mapped.create(layout, self.rows, self.envs))
        else:
            size = (self.rows, self.envs)
            columns = {name: new_column((*size, *shape), dtype, self.storage, self.device)
                       for name, (shape, dtype) in layout.items()}  # fmt: skip
            self._adopt(layout, columns)

    def _adopt(self, layout: Layout, columns: Batch) -> None:
        self.layout, self.columns = layout, columns
        self.flat = {name: column.flatten(0, 1) for name, column in columns.items()}
        if self.place.type == "cpu":
            self.arrays = {name: array_of(column) for name, column in columns.items()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: everything but the rows, which `disk.Archive` saves."""
        self.settle()
        return {
            "total": self.total,
            "first": self.first,
            "severed": self.severed,
            "mutable": sorted(self.mutable),
            "generator": self.ring.generator.get_state(),
            "selection": self.selection.state(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `state` gave; columns on disk are opened as they lie there, the others are still to be filled.

        On disk, rows that a run wrote after the checkpoint was taken have replaced the oldest ones: these are left out.
        """
        self.total, self.first, self.severed = saved["total"], saved["first"], saved["severed"]
        self.mutable = set(saved["mutable"])
        state = saved["generator"].cpu()
        if state.numel() == self.ring.generator.get_state().numel():  # that of another kind of device does not fit
            self.ring.generator.set_state(state)
        self.selection.restore(saved["selection"])
        if self.mapped is not None and self.mapped.present and self.total:
            self._adopt(*self.mapped.open(self.rows, self.envs))
            self.first = min(self.total, max(self.first, self.mapped.written - self.rows))

    def start_over(self, first: int) -> None:
        """Hold nothing; the next row to be appended is row `first`."""
        self.total = self.first = first
        self.severed = False


def _on_its_way(value: Tensor) -> Tensor:
    """Page-locked memory that a copy of `value` arrives in; to be read after an event recorded now."""
    return torch.empty(value.shape, dtype=value.dtype, pin_memory=True).copy_(value, non_blocking=True)


def _last_of_equals(slots: Tensor) -> Tensor:
    """For each entry the position of the last one equal to it: threads that write the same slot then write the same."""
    ordered, order = slots.sort(stable=True)
    return order[torch.searchsorted(ordered, slots, right=True) - 1]
