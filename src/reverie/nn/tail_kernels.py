"""The tail of a folded convolution as Triton kernels: each reads its inputs once and writes its results once.

Imports triton, so it is imported itself only where there is one. Rows are pixels with four phases each, in one row
or two lines, of which the largest is taken, or with one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Launch:
    """How a kernel is spread: numbers per thread and load (8 of two bytes are one wide load) and warps of a program.

    Where programs go on from block to block, how many there are, and how many blocks each has under way.
    """

    numbers: int
    warps: int
    programs: int = 0
    stages: int = 1

    def rows(self, columns: int) -> int:
        """How many rows one program works on at a time."""
        return max(1, self.numbers * self.warps * 32 // columns)


FORWARD = Launch(8, 4)
BACKWARD = Launch(8, 4, 528, 3)
"""Four programs on each of the 132 processors of an H200; their partial sums are added up at the end."""


def forward(phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int, launch: Launch = FORWARD) -> Tensor:
    """The tail (M, c) of phases (N, P, c), in the order that `tail.fused_tail` tells of maps so wide."""
    count, each, channels = results_of(phases)
    columns = triton.next_power_of_2(channels)
    rows = launch.rows(columns)
    y = phases.new_empty(count, channels)
    _forward[(triton.cdiv(count, rows),)](
        phases, bias, scale, y, count, eps, channels, columns, rows, width, each, num_warps=launch.warps
    )
    return y


def backward(
    dy: Tensor, phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int, launch: Launch = BACKWARD
) -> tuple[Tensor, Tensor]:
    """Gradients of the phases (N, P, c), and of bias and scale (2, c)."""
    count, each, channels = results_of(phases)
    columns = triton.next_power_of_2(channels)
    rows = launch.rows(columns)
    programs = min(launch.programs, triton.cdiv(count, rows))
    dphases = torch.empty_like(phases)
    sums = torch.empty(programs, 2, channels, device=phases.device)
    _backward[(programs,)](
        dy, phases, bias, scale, dphases, sums, count, eps, channels, columns, rows, width, each, launch.stages,
        num_warps=launch.warps,
    )  # fmt: skip
    return dphases, sums.sum(0)


def results_of(phases: Tensor) -> tuple[int, int, int]:
    """How many rows of results phases (N, P, c) have, P, and c: of two phases each, two rows make one."""
    count, each, channels = phases.shape
    return (count // 2 if each == 2 else count), each, channels


@triton.jit
def _forward(
    phases: tl.tensor, bias: tl.tensor, scale: tl.tensor, y: tl.tensor, count: tl.tensor, eps: tl.tensor,
    C: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PHASES: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    here = (row < count)[:, None] & (column < C)[None, :]
    at = _source(row, C, WIDTH, PHASES)[:, None] + column[None, :]
    if PHASES > 1:
        p0, p1, p2, p3 = _read_phases(phases + at, here, C, WIDTH, PHASES)
        top = _largest(p0, p1, p2, p3)
    else:
        top = _read(phases + at, here)
    shift, factor = _read_channels(bias, scale, column, C, phases.dtype.element_ty)
    _, _, z, gate = _activated(top, shift, factor, eps, C, phases.dtype.element_ty)
    _write(y + _place(row, C, WIDTH, PHASES)[:, None] + column[None, :], z * gate, here)


@triton.jit
def _backward(
    dy: tl.tensor, phases: tl.tensor, bias: tl.tensor, scale: tl.tensor, dphases: tl.tensor, sums: tl.tensor,
    count: tl.tensor, eps: tl.tensor,
    C: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PHASES: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:  # fmt: skip
    column = tl.arange(0, COLUMNS)
    shift, factor = _read_channels(bias, scale, column, C, phases.dtype.element_ty)
    dbias = tl.zeros((ROWS, COLUMNS), tl.float32)
    dscale = tl.zeros((ROWS, COLUMNS), tl.float32)
    for block in tl.range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = block * ROWS + tl.arange(0, ROWS)
        here = (row < count)[:, None] & (column < C)[None, :]
        at = _source(row, C, WIDTH, PHASES)[:, None] + column[None, :]
        d = _read(dy + _place(row, C, WIDTH, PHASES)[:, None] + column[None, :], here)
        if PHASES > 1:
            p0, p1, p2, p3 = _read_phases(phases + at, here, C, WIDTH, PHASES)
            top = _largest(p0, p1, p2, p3)
        else:
            top = _read(phases + at, here)
        normal, inverse, z, gate = _activated(top, shift, factor, eps, C, phases.dtype.element_ty)
        d = d * gate * (1 + z * (1 - gate))
        dscale += d * normal
        d = d * factor
        d = inverse * (d - normal * (tl.sum(d * normal, 1) * (1.0 / C))[:, None])
        dbias += d  # beyond the last row the gradient is 0, beyond the last channel all else
        if PHASES > 1:
            below = _below(C, WIDTH, PHASES)
            d = d / (_equal(p0, top) + _equal(p1, top) + _equal(p2, top) + _equal(p3, top))
            _write(dphases + at, d * _equal(p0, top), here)
            _write(dphases + at + C, d * _equal(p1, top), here)
            _write(dphases + at + below, d * _equal(p2, top), here)
            _write(dphases + at + below + C, d * _equal(p3, top), here)
        else:
            _write(dphases + at, d, here)
    to = sums + tl.program_id(0) * 2 * C + column
    _write(to, tl.sum(dbias, 0), column < C)
    _write(to + C, tl.sum(dscale, 0), column < C)


@triton.jit
def _read(at: tl.tensor, here: tl.tensor) -> Any:
    return tl.load(at, mask=here, other=0.0).to(tl.float32)


@triton.jit
def _source(row: tl.tensor, C: tl.constexpr, WIDTH: tl.constexpr, PHASES: tl.constexpr) -> Any:
    """Where the phases of a row of results begin."""
    row = row.to(tl.int64)
    if PHASES == 2:
        row = (row // WIDTH) * (2 * WIDTH) + row % WIDTH
    return row * (PHASES * C)


@triton.jit
def _below(C: tl.constexpr, WIDTH: tl.constexpr, PHASES: tl.constexpr) -> Any:
    """How far the third phase is from the first: a line further down, or beside the second."""
    if PHASES == 2:
        return 2 * C * WIDTH
    return 2 * C


@triton.jit
def _read_phases(at: tl.tensor, here: tl.tensor, C: tl.constexpr, WIDTH: tl.constexpr, PHASES: tl.constexpr) -> Any:
    below = at + _below(C, WIDTH, PHASES)
    return _read(at, here), _read(at + C, here), _read(below, here), _read(below + C, here)


@triton.jit
def _write(at: tl.tensor, values: tl.tensor, here: tl.tensor) -> None:
    tl.store(at, values.to(at.dtype.element_ty), mask=here)


@triton.jit
def _read_channels(bias: tl.tensor, scale: tl.tensor, column: tl.tensor, C: tl.constexpr, kind: tl.constexpr) -> Any:
    """Bias, rounded as plain code rounds it, and scale, as rows (1, c)."""
    shift, factor = _read(bias + column, column < C), _read(scale + column, column < C)
    return shift.to(kind).to(tl.float32)[None, :], factor[None, :]


@triton.jit
def _largest(p0: tl.tensor, p1: tl.tensor, p2: tl.tensor, p3: tl.tensor) -> Any:
    """The maximum; not-a-number stays what it is, as in torch."""
    a = tl.maximum(p0, p1, propagate_nan=tl.PropagateNan.ALL)
    b = tl.maximum(p2, p3, propagate_nan=tl.PropagateNan.ALL)
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _equal(p: tl.tensor, top: tl.tensor) -> Any:
    return tl.where(p == top, 1.0, 0.0)


@triton.jit
def _activated(
    top: tl.tensor, shift: tl.tensor, factor: tl.tensor, eps: tl.tensor, C: tl.constexpr, kind: tl.constexpr
) -> Any:
    """The normalised vectors, what they were multiplied with, what goes into SiLU, and its sigmoid."""
    value = (top + shift).to(kind).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(value * value, 1) * (1.0 / C) + eps)[:, None]
    normal = value * inverse
    z = (normal * factor).to(kind).to(tl.float32)
    return normal, inverse, z, 1 / (1 + tl.exp(-z))


@triton.jit
def _place(row: tl.tensor, C: tl.constexpr, WIDTH: tl.constexpr, PHASES: tl.constexpr) -> Any:
    """Where the result of a row begins: tile by tile or the other way round, without a width or of two lines by row."""
    if WIDTH > 0:
        if PHASES == 4:
            line = row // WIDTH
            x = row % WIDTH
            row = ((line // 2) * (WIDTH // 2) + x // 2) * 4 + (line % 2) * 2 + x % 2
        elif PHASES == 1:
            tile = row // 4
            line = 2 * (tile // (WIDTH // 2)) + row // 2 % 2
            row = line * WIDTH + 2 * (tile % (WIDTH // 2)) + row % 2
    return row.to(tl.int64) * C
