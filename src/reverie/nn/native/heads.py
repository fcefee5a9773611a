"""What heads expect, as programs of layers for a CPU."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType

import torch
from torch import Tensor, nn

from ..heads import NumberHead
from ..outputs import Bernoulli, Normal, TwoHot, symexp
from .machine import Unfit, ours, plainly
from .memory import Memory
from .program import Kind, Program

FEW = 256
"""Rows below which a head is not worth a program."""


def expectation(program: Program, parts: list[tuple[int, int]], head: NumberHead) -> dict[str, tuple[int, int]]:
    """The columns (first, count) of a head's outputs and of what it expects, from those of features."""
    ours(head, NumberHead)
    column, size = program.dense(parts, nn.Sequential(head.body, head.linear))
    found, output = program.columns(1), head.output
    if type(output) is TwoHot:
        edges, room = program.pointer(output.edges), program.columns(size)
        program.add(Kind.EXPECT, a=column, b=found, c=room, k=size, weight=edges)
    elif type(output) is Bernoulli:
        program.add(Kind.SIGMOID, a=column, b=found, high=1.0)
    elif type(output) is Normal:
        found = column
    else:
        raise Unfit(f"it has no {type(output).__name__}")
    return {"outputs": (column, size), "expected": (found, 1)}


class NativeHead:
    """Does what `NumberHead.pred` does in an update, where no gradient is asked for."""

    def __init__(self, head: NumberHead, memory: Memory, half: bool = False) -> None:
        self.head, self.memory, self.program = head, memory, Program(half)
        width = next(head.parameters()).shape[1]
        columns = expectation(self.program, [(self.program.load("feature", width), width)], head)
        self.program.store("expected", *columns["expected"])
        self.program.finish()

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[NumberHead, str]]:
        """A copy of the head expects by itself."""
        return plainly, (self.head, "pred")

    def __call__(self, features: Tensor) -> Tensor:
        """The expected number (...)."""
        rows = features.reshape(-1, features.shape[-1]).contiguous()
        plain = torch.is_grad_enabled() or not self.memory.lasts  # acting is always plain: runs that go on act alike
        if plain or len(rows) < FEW or features.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return type(self.head).pred(self.head, features)
        known = self.memory.take(self.head, rows, "expected")
        expected = known["expected"] if known else self.run(rows)
        found = expected.reshape(features.shape[:-1])
        return symexp(found) if isinstance(self.head.output, TwoHot) and not self.head.output.raw else found

    def run(self, rows: Tensor) -> Tensor:
        """What is expected (B, 1), for two-hot outputs in the space of their bins, at features (B, F)."""
        expected = rows.new_empty(len(rows), 1)
        self.program.run({"feature": rows, "expected": expected}, len(rows))
        return expected
