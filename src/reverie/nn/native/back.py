"""Programs that are differentiated: one that stores what its way back needs, and the way back."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from .machine import Op
from .program import LANES, Kind, Program

COPIED = ("a", "b", "c", "d", "e", "k", "groups", "eps", "low", "high", "center", "active", "weight", "bias")
"""What an operation on other columns has alike."""


class Remembering(Program):
    """A program that stores what the way back needs: `kept0`, `kept1`, ... of the layers that it is `of`, if any."""

    of: str | None = ""

    def keep(self, column: int, count: int) -> None:
        """Store columns for the way back."""
        if self.of is not None:
            number = sum(name.startswith(f"{self.of}kept") for name in self.remembered)
            self.store_new(f"{self.of}kept{number}", column, count)

    def store_new(self, name: str, column: int, count: int) -> None:
        """Store columns, for which a run brings the room."""
        self.remembered[name] = count
        self.store(name, column, count)


class Returning(Program):
    """A program that goes through operations and back again, and adds up the gradients of what it learns."""

    unneeded: tuple[Kind, ...] = ()
    """What need not be done on the way there."""

    def __init__(self, learned: list[Tensor], half: bool = False) -> None:
        super().__init__(half)
        self.learned = learned
        """Parameters whose gradients a run gives."""
        self.sums: dict[int, int] = {}
        """Operations that add up gradients over rows, and how many numbers lie before theirs."""
        self.goals: dict[int, list[tuple[int, int] | None]] = {}
        """Where their sums for weight and bias go in the end: which parameter's gradient, from which byte on."""
        self.room = 0
        """How many numbers are added up."""
        self.written: set[int] = set()
        """Columns of gradients that something was written to."""

    def apart(self, column: int, size: int) -> int:
        """Columns of their own, as the gradient of a norm needs what comes in and what goes out."""
        return self.columns(size)

    def differentiate(self, ops: list[Op], shift: int, found: list[int], still: tuple[int, ...] = ()) -> None:
        """Add what takes gradients back through operations, the first ones of this program.

        The gradient of every column lies `shift` columns behind it. It is there for the columns `found`; nobody asks
        for it of the columns `still`.
        """
        self.written = {shift + column for column in found}
        draws: dict[int, int] = {}
        for number, op in reversed(list(enumerate(ops))):
            op.until = 0 if op.kind in self.unneeded else op.until
            match op.kind:
                case Kind.LINEAR:
                    self._product_back(number, op, shift, op.a not in still)
                case Kind.NORM:
                    self._copied(op, Kind.NORM_BACK, b=shift + op.b, c=shift + op.a, add=self._again(shift + op.a))
                    self._learn(2 * op.k, op.weight, op.bias)
                case Kind.GATED:
                    assert not self._again(shift + op.a) | self._again(shift + op.b)
                    self._copied(op, Kind.GATED_BACK, c=shift + op.c, d=shift + op.a, e=shift + op.b)
                case Kind.DRAW:
                    draws[op.a] = shift + op.c
                case Kind.CLASSES:
                    self._copied(op, Kind.CLASSES_BACK, a=op.c, b=draws[op.c], c=shift + op.b, d=shift + op.a)
                case Kind.RESET:
                    self._copied(op, Kind.RESET, a=shift + op.b, b=shift + op.a)

    def _again(self, column: int) -> int:
        """Whether a gradient is added to what is there: 0 the first time that columns are asked for, then 1."""
        again = column in self.written
        self.written.add(column)
        return int(again)

    def _product_back(self, number: int, op: Op, shift: int, by_inputs: bool) -> None:
        if by_inputs:
            back, steps = self.weights[number].transpose(1, 2), (op.out_step, op.in_step)
            self.blocks(shift + op.b, shift + op.a, back, None, bool(self._again(shift + op.a)), steps)
            self.ops[-1].half = op.half
        if self._owner(op.weight) is None and self._owner(op.bias) is None:
            return
        fields = {name: getattr(op, name) for name in ("k", "n", "groups", "in_step", "out_step")}
        strides = {name: getattr(op, name) for name in ("source_step", "k_stride", "n_stride")}
        self.add(Kind.WEIGH, a=op.a, b=shift + op.b, half=op.half, **fields, **strides)
        self._learn(op.groups * -(-op.n // LANES) * (op.k + 1) * LANES, op.weight, op.bias)

    def _owner(self, pointer: int | None) -> tuple[int, int] | None:
        """The number of the learned parameter that lies there, and how many bytes of it lie before."""
        for number, each in enumerate(self.learned):
            if pointer is not None and 0 <= pointer - each.data_ptr() < each.nbytes:
                return number, pointer - each.data_ptr()
        return None

    def _learn(self, size: int, *pointers: int | None) -> None:
        """Let the last operation add up so many numbers for the gradients of what lies there, if that is learned."""
        found = [self._owner(pointer) for pointer in pointers]
        if any(found):
            self.sums[len(self.ops) - 1], self.goals[len(self.ops) - 1] = self.room, found
            self.room += size

    def _copied(self, op: Op, kind: Kind, **fields: int) -> None:
        """A new operation like another one, on other columns."""
        self.add(kind, **{name: getattr(op, name) for name in COPIED} | fields)

    def learn(self, given: dict[str, Tensor], rows: int, steps: int = 1, backwards: bool = False) -> list[Tensor]:
        """Run as `run` does; the gradients of what is learned."""
        array, shares = self.bound(given, rows, steps), self.shares(rows)
        gradients = [torch.empty_like(each) for each in self.learned]
        room = self.summed(array, gradients, shares)
        self.work(array, shares, rows, steps, backwards)
        if room.numel():
            self.library.collect(array, len(array), shares)
        return gradients

    def summed(self, array: ctypes.Array[Op], gradients: list[Tensor], shares: int) -> Tensor:
        """Room for what every share adds up, which the operations of a run then point at, and at the gradients."""
        room = torch.zeros(shares, self.room)
        for number, before in self.sums.items():
            op = array[number]
            op.packed, op.share = room.data_ptr() + 4 * before, self.room
            for name, goal in zip(("by_weight", "by_bias"), self.goals[number]):
                setattr(op, name, None if goal is None else gradients[goal[0]].data_ptr() + goal[1])
        return room


class Recalling(Returning):
    """The way back alone: what the way there has stored is read instead of being worked out by products again."""

    unneeded = (Kind.LINEAR, Kind.DRAW)

    def keep(self, column: int, count: int) -> None:
        """Read the columns that the way there has stored."""
        name = f"kept{len(self.remembered)}"
        self.remembered[name] = count
        self.load(name, count, column)
