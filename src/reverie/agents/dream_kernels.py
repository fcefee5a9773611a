"""What lies between two states of a dream, from the first products of one to all inputs of the next, in one kernel.

That is the prior's layers and a draw of the latent, its share of the cell and the actor, the actor's layers, a draw of
the action, and its share of the cell. Rows are independent, so a program takes some rows through everything, and
weights come from the second-level cache. For categorical latents, one choice of action or bounded normals, RMS norms,
SiLU, widths that are powers of 2. Imports triton; `TRITON_INTERPRET=1` plays it on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..nn.gru_kernels import sigmoid, tanh
from .dreaming import Thoughts


@dataclass(frozen=True)
class Launch:
    """How a kernel is spread: rows of a program, inputs of a product at a time, warps, and loads ahead."""

    rows: int = 16
    inputs: int = 128
    warps: int = 8
    stages: int = 1


ROOM, SPARE = 227 * 1024, 16 * 1024
"""Bytes of shared memory that a program has at most, and what it takes besides weights."""


def think(
    weights: Thoughts, known: Tensor, drawn: Tensor, held: Tensor, action: Tensor, draw: Tensor,
    latent: tuple[Tensor, Tensor] | None = None, launch: Launch | None = None,
) -> None:  # fmt: skip
    """Write the actions (B, A) of states, given their first products (B, 3 h), and the inputs of the next step.

    These are the last columns of `held` (B, D + 3 h). What latents are drawn of (B, S) comes with the place (B, Z) that
    they are written to, as their classes are to `drawn` (B, S); if it does not come, these have been drawn.
    """
    launch = launch or Launch()
    (count, actions), width, size = action.shape, known.shape[1] // 3, weights.by_stoch[0].shape[1]
    programs = triton.cdiv(count, launch.rows)
    scratch = known.new_empty(programs * launch.rows, width)
    widest = max(size, 2 * width)
    chunk = min(launch.inputs, width, size, 1 << ((room(known) // widest).bit_length() - 1))
    noise, place = latent or (draw, known)
    _think[(programs,)](
        known, drawn, place, place.stride(0), noise, draw, held, scratch, action,
        weights.layers, weights.biases, weights.scales, weights.first_scales, *weights.prior_out, *weights.by_stoch,
        *weights.actor_out, *weights.action_in, count, weights.eps, *weights.mixed, *(weights.spread or (0.0, 0.0)),
        weights.limit, int(latent is not None),
        STRIDE=held.stride(0), WIDTH=width, LATENT=size, GROUPS=weights.groups, ACTIONS=actions,
        PADDED=max(16, triton.next_power_of_2(actions)), PRIOR=weights.prior_layers, LAYERS=len(weights.layers),
        NORMAL=weights.spread is not None, ROWS=launch.rows, CHUNK=chunk, STAGES=launch.stages, num_warps=launch.warps,
    )  # fmt: skip


def room(weights: Tensor) -> int:
    """How many weights of its type a program has room for: H200s have 227 KiB, many others 99."""
    memory = ROOM
    if weights.is_cuda:
        properties = torch.cuda.get_device_properties(weights.device)
        memory = getattr(properties, "shared_memory_per_block_optin", ROOM)
    return (memory - SPARE) // weights.element_size()


@triton.jit(do_not_specialize=["drawing"])
def _think(
    known: tl.tensor, drawn: tl.tensor, after: tl.tensor, after_stride: tl.tensor, noise: tl.tensor, draw: tl.tensor,
    held: tl.tensor, scratch: tl.tensor, action: tl.tensor,
    layers: tl.tensor, biases: tl.tensor, scales: tl.tensor, first_scales: tl.tensor,
    prior_w: tl.tensor, prior_b: tl.tensor, stoch_w: tl.tensor, stoch_b: tl.tensor,
    actor_w: tl.tensor, actor_b: tl.tensor, embed_w: tl.tensor, embed_b: tl.tensor, embed_s: tl.tensor,
    count: tl.tensor, eps: tl.tensor, mixed: tl.tensor, mixed_actions: tl.tensor, least: tl.tensor,
    most: tl.tensor, limit: tl.tensor, drawing: tl.tensor,
    STRIDE: tl.constexpr, WIDTH: tl.constexpr, LATENT: tl.constexpr, GROUPS: tl.constexpr, ACTIONS: tl.constexpr,
    PADDED: tl.constexpr, PRIOR: tl.constexpr, LAYERS: tl.constexpr, NORMAL: tl.constexpr, ROWS: tl.constexpr,
    CHUNK: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    kind: tl.constexpr = known.dtype.element_ty
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = (row < count)[:, None]
    column, every = tl.arange(0, WIDTH), tl.arange(0, LATENT)
    mine = known + row[:, None] * (3 * WIDTH) + column[None, :]
    theirs = held + row[:, None] * STRIDE + (STRIDE - 3 * WIDTH) + column[None, :]
    own = scratch + row[:, None] * WIDTH + column[None, :]
    CLASSES: tl.constexpr = LATENT // GROUPS
    if drawing > 0:
        told = _activated(tl.load(mine, here, 0.0).to(tl.float32), first_scales + column, eps, WIDTH, kind)
        for layer in tl.static_range(PRIOR):
            _pass_on(own, told)
            told = _dense(scratch, row, here, layers + layer * WIDTH * WIDTH, biases + layer * WIDTH, WIDTH, WIDTH, ROWS, CHUNK, STAGES, kind)  # fmt: skip  # noqa: E501
            told = _activated(told, scales + layer * WIDTH + column, eps, WIDTH, kind)
        _pass_on(own, told)
        logits = _dense(scratch, row, here, prior_w, prior_b, LATENT, WIDTH, ROWS, CHUNK, STAGES, kind)
        logits = tl.reshape(logits, (ROWS, GROUPS, CLASSES))
        group = tl.arange(0, GROUPS)
        share = tl.load(noise + row[:, None] * GROUPS + group[None, :], here, 0.0)
        chosen = _chosen(logits, tl.full((1, 1, CLASSES), True, tl.int1), share, mixed, CLASSES, 2)
        tl.store(drawn + row[:, None] * GROUPS + group[None, :], chosen, here)
        one_hot = tl.where(tl.arange(0, CLASSES)[None, None, :] == chosen[:, :, None], 1.0, 0.0)
        to = after + row.to(tl.int64)[:, None] * after_stride + every[None, :]
        tl.store(to, tl.reshape(one_hot, (ROWS, LATENT)).to(kind), here)
        tl.debug_barrier()
    state = _activated(tl.load(mine + WIDTH, here, 0.0).to(tl.float32), first_scales + WIDTH + column, eps, WIDTH, kind)
    tl.store(theirs, state, here)
    both = _one_hot(drawn, row, here, stoch_w, stoch_b, 2 * WIDTH, LATENT, CLASSES, ROWS, CHUNK, STAGES, kind)
    latent, acting = tl.split(tl.permute(tl.reshape(both, (ROWS, 2, WIDTH)), (0, 2, 1)))
    latent = _activated(latent, first_scales + 2 * WIDTH + column, eps, WIDTH, kind)
    tl.store(theirs + WIDTH, latent, here)
    acting = (acting + tl.load(mine + 2 * WIDTH, here, 0.0).to(tl.float32)).to(kind).to(tl.float32)
    acting = _activated(acting, first_scales + 3 * WIDTH + column, eps, WIDTH, kind)
    for layer in tl.static_range(PRIOR, LAYERS):
        _pass_on(own, acting)
        acting = _dense(scratch, row, here, layers + layer * WIDTH * WIDTH, biases + layer * WIDTH, WIDTH, WIDTH, ROWS, CHUNK, STAGES, kind)  # fmt: skip  # noqa: E501
        acting = _activated(acting, scales + layer * WIDTH + column, eps, WIDTH, kind)
    _pass_on(own, acting)
    acted = _acted(
        scratch, row, count, action, draw, actor_w, actor_b, embed_w, mixed_actions, least, most, limit, ACTIONS,
        PADDED, NORMAL, WIDTH, ROWS, CHUNK, STAGES, kind,
    )  # fmt: skip
    acted = (acted + tl.load(embed_b + column).to(tl.float32)[None, :]).to(kind).to(tl.float32)
    tl.store(theirs + 2 * WIDTH, _activated(acted, embed_s + column, eps, WIDTH, kind), here)


@triton.jit
def _acted(
    source: tl.tensor, row: tl.tensor, count: tl.tensor, action: tl.tensor, draw: tl.tensor, weights: tl.tensor,
    bias: tl.tensor, turned: tl.tensor, mixed: tl.tensor, least: tl.tensor, most: tl.tensor, limit: tl.tensor,
    ACTIONS: tl.constexpr, PADDED: tl.constexpr, NORMAL: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    CHUNK: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr,
) -> Any:  # fmt: skip
    """The product of actions that are drawn, which are written to their place, given the actor's last features."""
    column, choice = tl.arange(0, WIDTH), tl.arange(0, PADDED)
    here, real = (row < count)[:, None], (choice < ACTIONS)[None, :]
    at = action + row[:, None] * ACTIONS + choice[None, :]
    outputs = _dense(source, row, here, weights, bias, PADDED, WIDTH, ROWS, CHUNK, STAGES, kind, ACTIONS)
    outputs = _within(outputs, limit)
    if NORMAL:
        weights, bias = weights + ACTIONS * WIDTH, bias + ACTIONS
        spread = _dense(source, row, here, weights, bias, PADDED, WIDTH, ROWS, CHUNK, STAGES, kind, ACTIONS)
        shake = tl.load(draw + row[:, None] * ACTIONS + choice[None, :], here & real, 0.0)
        value = tanh(outputs) + ((most - least) * sigmoid(_within(spread, limit) + 2) + least) * shake
        tl.store(at, value, here & real)
        value = (value / tl.maximum(tl.abs(value), 1.0)).to(kind).to(tl.float32)
        acted = tl.zeros((ROWS, WIDTH), tl.float32)
        for j in tl.static_range(ACTIONS):
            part = tl.sum(tl.where(choice[None, :] == j, value, 0.0), 1)
            acted += part[:, None] * tl.load(turned + j * WIDTH + column).to(tl.float32)[None, :]
        acted = acted.to(kind).to(tl.float32)
    else:
        taken = _chosen(outputs, real, tl.load(draw + row, row < count, 0.0), mixed, ACTIONS, 1)
        tl.store(at, tl.where(choice[None, :] == taken[:, None], 1.0, 0.0), here & real)
        acted = tl.load(turned + taken[:, None] * WIDTH + column[None, :]).to(tl.float32)
    return acted


@triton.jit
def _within(x: tl.tensor, limit: tl.tensor) -> Any:
    """Numbers of at most some magnitude; not-a-number stays what it is, as in torch."""
    above = tl.maximum(x, -limit, propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(above, limit, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _pass_on(to: tl.tensor, values: tl.tensor) -> None:
    """Leave values where the next product reads them, when all have read what was there."""
    tl.debug_barrier()
    tl.store(to, values)
    tl.debug_barrier()


@triton.jit
def _dense(
    source: tl.tensor, row: tl.tensor, here: tl.tensor, weights: tl.tensor, bias: tl.tensor, N: tl.constexpr,
    K: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr,
    OUTPUTS: tl.constexpr = 0,
) -> Any:  # fmt: skip
    """A linear layer of rows that lie one after the other, as float32 numbers rounded as a product rounds them.

    It may have fewer outputs than columns.
    """
    column = tl.arange(0, N)
    wanted = column < (OUTPUTS if OUTPUTS > 0 else N)
    total = tl.zeros((ROWS, N), tl.float32)
    for k in tl.range(0, K, CHUNK, num_stages=STAGES):
        inner = k + tl.arange(0, CHUNK)
        left = tl.load(source + row[:, None] * K + inner[None, :], here, 0.0)
        if OUTPUTS > 0:
            right = tl.load(weights + column[None, :] * K + inner[:, None], wanted[None, :], 0.0)
        else:
            right = tl.load(weights + column[None, :] * K + inner[:, None])
        total = tl.dot(left, right, total, input_precision="ieee")
    return (total + tl.load(bias + column, wanted, 0.0).to(tl.float32)[None, :]).to(kind).to(tl.float32)


@triton.jit
def _one_hot(
    drawn: tl.tensor, row: tl.tensor, here: tl.tensor, weights: tl.tensor, bias: tl.tensor, N: tl.constexpr,
    K: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr,
    kind: tl.constexpr,
) -> Any:  # fmt: skip
    """A linear layer of the one-hot vectors of classes drawn."""
    column = tl.arange(0, N)
    total = tl.zeros((ROWS, N), tl.float32)
    for k in tl.range(0, K, CHUNK, num_stages=STAGES):
        inner = k + tl.arange(0, CHUNK)
        chosen = tl.load(drawn + row[:, None] * (K // CLASSES) + (inner // CLASSES)[None, :], here, 0)
        left = tl.where(chosen == (inner % CLASSES)[None, :], 1.0, 0.0).to(kind)
        right = tl.load(weights + column[None, :] * K + inner[:, None])
        total = tl.dot(left, right, total, input_precision="ieee")
    return (total + tl.load(bias + column).to(tl.float32)[None, :]).to(kind).to(tl.float32)


@triton.jit
def _activated(x: tl.tensor, scale: tl.tensor, eps: tl.tensor, C: tl.constexpr, kind: tl.constexpr) -> Any:
    """Rows (R, c) after an RMS norm and SiLU."""
    root = tl.rsqrt(tl.sum(x * x, 1) * (1.0 / C) + eps)[:, None]
    z = (x * root * tl.load(scale)[None, :]).to(kind).to(tl.float32)
    return (z / (1 + tl.exp(-z))).to(kind)


@triton.jit
def _chosen(
    logits: tl.tensor, wanted: tl.tensor, share: tl.tensor, mixed: tl.tensor, CLASSES: tl.constexpr, axis: tl.constexpr
) -> Any:  # fmt: skip
    """The class (...) whose stretch of all probabilities (..., K) holds a share of them."""
    logits = tl.where(wanted, logits, float("-inf"))
    powers = tl.exp(logits - tl.expand_dims(tl.max(logits, axis), axis))
    prob = powers / tl.expand_dims(tl.sum(powers, axis), axis)
    prob = tl.where(wanted, (1 - mixed) * prob + mixed / CLASSES, 0.0)
    limit = tl.expand_dims(share * tl.sum(prob, axis), axis)
    before = tl.where((tl.cumsum(prob, axis) < limit) & wanted, 1, 0)
    return tl.minimum(tl.sum(before, axis), CLASSES - 1)
