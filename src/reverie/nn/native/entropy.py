"""Cross-entropy of logits with a few classes as programs for a CPU."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from ..outputs import TwoHot, cross_entropy
from .machine import ours, plainly
from .program import Kind, Program

FEW = 256
"""Rows below which it is not worth a program."""


class NativeEntropy:
    """Does what `TwoHot.cross_entropy` does."""

    def __init__(self, output: TwoHot) -> None:
        ours(output, TwoHot)
        self.output = output
        self.programs: dict[tuple[int, Kind], Program] = {}
        """By how many classes have shares, there and back."""

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[TwoHot, str]]:
        """A copy of the output does it by itself."""
        return plainly, (self.output, "cross_entropy")

    def __call__(self, x: Tensor, classes: Tensor, shares: Tensor) -> Tensor:
        """Cross-entropy (...) of logits (..., K) with the shares (..., n) that some classes have."""
        if x.numel() < FEW * x.shape[-1]:
            return cross_entropy(x, classes, shares)
        found: Tensor = Entropy.apply(self, x, classes, shares)
        return found

    def run(self, kind: Kind, x: Tensor, classes: Tensor, shares: Tensor) -> Tensor:
        """The losses (B, 1) of logits (B, K) with shares (B, n), or their gradient (B, K)."""
        count, bins = classes.shape[-1], x.shape[-1]
        size = 1 if kind == Kind.ENTROPY else bins
        if (count, kind) not in self.programs:
            self.programs[count, kind] = program_of(kind, bins, count, size)
        found = x.new_empty(len(x), size)
        self.programs[count, kind].run({"x": x, "classes": classes, "shares": shares, "found": found}, len(x))
        return found


def program_of(kind: Kind, bins: int, count: int, size: int) -> Program:
    """From logits, classes and their shares to the loss or its gradient."""
    program = Program()
    x, classes, shares = (
        program.load(name, width) for name, width in (("x", bins), ("classes", count), ("shares", count))
    )
    found = program.columns(bins)
    program.add(kind, a=x, b=classes, c=shares, d=found, k=bins, n=count)
    program.store("found", found, size)
    program.finish()
    return program


class Entropy(torch.autograd.Function):
    """The programs."""

    @staticmethod
    def forward(ctx: Any, native: NativeEntropy, x: Tensor, classes: Tensor, shares: Tensor) -> Tensor:
        """The cross-entropy (...)."""
        ctx.native, ctx.shape = native, x.shape
        ctx.given = [each.reshape(-1, each.shape[-1]).float().contiguous() for each in (x, classes, shares)]
        return native.run(Kind.ENTROPY, *ctx.given).reshape(x.shape[:-1])

    @staticmethod
    def backward(ctx: Any, *goals: Tensor) -> tuple[None, Tensor, None, None]:
        """The gradient of the logits."""
        x, classes, shares = ctx.given
        found = ctx.native.run(Kind.ENTROPY_BACK, x, classes, shares * goals[0].reshape(-1, 1))
        return None, found.reshape(ctx.shape), None, None
