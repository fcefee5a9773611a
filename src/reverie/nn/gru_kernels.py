"""A step of the cell of blocks as three Triton kernels, which leave nothing but what the norm needs to one another.

Imports triton, so it is imported itself only where there is one. Without gradients, for RMS norms and SiLU. What plain
operations round to half precision between layers is rounded here, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .gru import CellWeights


@dataclass(frozen=True)
class Launch:
    """How a kernel is spread: rows and columns of a program, inputs of a product at a time, warps, and loads ahead.

    Columns and inputs are at most these: a power of 2 that divides what there is.
    """

    rows: int
    columns: int
    inputs: int
    warps: int
    stages: int


MIX = Launch(128, 128, 64, 8, 3)
GATES = Launch(128, 64, 64, 8, 3)
NUMBERS, WARPS = 8, 4
"""Numbers of a thread of the kernel between both, and warps of its programs."""


def advance(held: Tensor, weights: CellWeights, after: Tensor, mix: Launch = MIX, gates: Launch = GATES) -> None:
    """Write the next state over states (B, D) in rows of state and inputs (B, D + 3 h), and to `after` (B, D)."""
    gated(held, activated(*mixed(held, weights, mix), weights), weights, after, gates)


def mixed(held: Tensor, weights: CellWeights, launch: Launch = MIX) -> tuple[Tensor, Tensor]:
    """What the cell makes of state and inputs (B, D), before its norm, and squares of it added up by columns (B, n)."""
    blocks, inputs, width = weights.mix.shape
    count, deter, columns = len(held), blocks * width, min(launch.columns, power_in(width))
    chunk = min(launch.inputs, power_in(width), power_in(inputs))
    x, sums = held.new_empty(count, deter), torch.empty(count, deter // columns, device=held.device)
    _mixed[(triton.cdiv(count, launch.rows), width // columns, blocks)](
        held, weights.mix, weights.mix_bias, x, sums, count, STRIDE=held.stride(0), BLOCKS=blocks, WIDTH=width,
        INPUTS=inputs, ROWS=launch.rows, COLUMNS=columns, CHUNK=chunk, STAGES=launch.stages, num_warps=launch.warps,
    )  # fmt: skip
    return x, sums


def activated(x: Tensor, sums: Tensor, weights: CellWeights) -> Tensor:
    """The same after norm and SiLU, in its place."""
    count, deter = x.shape
    columns = weights.mix.shape[2]
    rows = max(1, NUMBERS * WARPS * 32 // triton.next_power_of_2(columns))
    _activated[(triton.cdiv(count, rows), deter // columns)](
        x, sums, weights.scale, count, weights.eps, DETER=deter, PARTS=sums.shape[1],
        PADDED=triton.next_power_of_2(sums.shape[1]), ROWS=rows, WIDTH=columns,
        COLUMNS=triton.next_power_of_2(columns), num_warps=WARPS,
    )  # fmt: skip
    return x


def gated(held: Tensor, x: Tensor, weights: CellWeights, after: Tensor, launch: Launch = GATES) -> None:
    """Write the next state, given what `activated` leaves."""
    blocks, width = weights.gates.shape[:2]
    count, columns, chunk = len(x), min(launch.columns, power_in(width)), min(launch.inputs, power_in(width))
    _gated[(triton.cdiv(count, launch.rows), width // columns, blocks)](
        held, x, weights.gates, weights.gates_bias, after, after.stride(0), count,
        STRIDE=held.stride(0), BLOCKS=blocks, WIDTH=width, ROWS=launch.rows, COLUMNS=columns, CHUNK=chunk,
        STAGES=launch.stages, num_warps=launch.warps,
    )  # fmt: skip


def power_in(number: int) -> int:
    """The largest power of 2 that divides a number."""
    return number & -number


@triton.jit
def _mixed(
    held: tl.tensor, weights: tl.tensor, bias: tl.tensor, x: tl.tensor, sums: tl.tensor, count: tl.tensor,
    STRIDE: tl.constexpr, BLOCKS: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    kind: tl.constexpr = held.dtype.element_ty
    block = tl.program_id(2)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = (row < count)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, CHUNK)
    rows = held + row[:, None] * STRIDE + inner[None, :]
    layer = weights + block * (INPUTS * WIDTH) + inner[:, None] * WIDTH + column[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in tl.range(0, INPUTS, CHUNK, num_stages=STAGES):
        # first this block of the state, then the inputs, which lie behind all blocks
        start = tl.multiple_of(tl.where(k < WIDTH, block * WIDTH + k, (BLOCKS - 1) * WIDTH + k), CHUNK)
        total = tl.dot(tl.load(rows + start, here, 0.0), tl.load(layer + k * WIDTH), total, input_precision="ieee")
    place = block * WIDTH + column
    found = _rounded(total, bias + place, kind)
    tl.store(x + row[:, None] * (BLOCKS * WIDTH) + place[None, :], found, here)
    wide = found.to(tl.float32)
    part = block * (WIDTH // COLUMNS) + tl.program_id(1)
    tl.store(sums + row * (BLOCKS * WIDTH // COLUMNS) + part, tl.sum(wide * wide, 1), row < count)


@triton.jit
def _activated(
    x: tl.tensor, sums: tl.tensor, scale: tl.tensor, count: tl.tensor, eps: tl.tensor, DETER: tl.constexpr,
    PARTS: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
) -> None:  # fmt: skip
    kind: tl.constexpr = x.dtype.element_ty
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column, part = tl.arange(0, COLUMNS), tl.arange(0, PADDED)
    alive = row < count
    squares = tl.load(sums + row[:, None] * PARTS + part[None, :], alive[:, None] & (part < PARTS)[None, :], 0.0)
    root = tl.rsqrt(tl.sum(squares, 1) * (1.0 / DETER) + eps)[:, None]
    place = tl.program_id(1) * WIDTH + column
    here = alive[:, None] & (column < WIDTH)[None, :]
    at = x + row[:, None] * DETER + place[None, :]
    z = tl.load(at, here, 0.0).to(tl.float32) * root * tl.load(scale + place, column < WIDTH, 0.0)[None, :]
    z = z.to(kind).to(tl.float32)
    tl.store(at, (z / (1 + tl.exp(-z))).to(kind), here)


@triton.jit
def _gated(
    held: tl.tensor, x: tl.tensor, weights: tl.tensor, bias: tl.tensor, after: tl.tensor, after_stride: tl.tensor,
    count: tl.tensor, STRIDE: tl.constexpr, BLOCKS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    kind: tl.constexpr = held.dtype.element_ty
    block = tl.program_id(2)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = (row < count)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, CHUNK)
    source = x + row[:, None] * (BLOCKS * WIDTH) + block * WIDTH + inner[None, :]
    layer = weights + block * (3 * WIDTH * WIDTH) + inner[:, None] * (3 * WIDTH) + column[None, :]
    reset = tl.zeros((ROWS, COLUMNS), tl.float32)
    candidate = tl.zeros((ROWS, COLUMNS), tl.float32)
    update = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in tl.range(0, WIDTH, CHUNK, num_stages=STAGES):
        left = tl.load(source + k, here, 0.0)
        there = layer + k * (3 * WIDTH)
        reset = tl.dot(left, tl.load(there), reset, input_precision="ieee")
        candidate = tl.dot(left, tl.load(there + WIDTH), candidate, input_precision="ieee")
        update = tl.dot(left, tl.load(there + 2 * WIDTH), update, input_precision="ieee")
    below = bias + block * (3 * WIDTH) + column
    reset = sigmoid(_rounded(reset, below, kind).to(tl.float32))
    candidate = tanh(reset * _rounded(candidate, below + WIDTH, kind).to(tl.float32))
    weight = sigmoid(_rounded(update, below + 2 * WIDTH, kind).to(tl.float32) - 1)
    place = row[:, None] * STRIDE + (block * WIDTH + column)[None, :]
    state = tl.load(held + place, here, 0.0).to(tl.float32)
    state = (state + weight * (candidate - state)).to(kind)
    tl.store(held + place, state, here)
    tl.store(after + row[:, None].to(tl.int64) * after_stride + (block * WIDTH + column)[None, :], state, here)


@triton.jit
def _rounded(total: tl.tensor, bias: tl.tensor, kind: tl.constexpr) -> Any:
    """A product, rounded, and its bias, rounded again."""
    return (total.to(kind).to(tl.float32) + tl.load(bias).to(tl.float32)[None, :]).to(kind)


@triton.jit
def sigmoid(x: tl.tensor) -> Any:
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x: tl.tensor) -> Any:
    return 2 * sigmoid(2 * x) - 1
