"""What follows a folded convolution: bias, RMS norm and SiLU of the largest of four phases, or of each: one operation.

On a GPU it is a kernel each way, on a CPU the formulas below. Pixels are rows here: phases (N, P, c), results (M, c).
Of four phases the largest is taken, whether they are in one row or two in each of two lines. Where there is one, the
rows are the phases of 2x2 tiles of an enlarged map.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._triton import has_triton

from .layers import RMSNorm


def fusible(tail: nn.Module, device: torch.device) -> bool:
    """Whether there is a kernel for the tail of a layer on a device."""
    parts = [type(part) for part in tail.children()]
    return parts == [RMSNorm, nn.SiLU] and device.type == "cuda" and has_triton()


def pooled_tail(phases: Tensor, bias: Tensor, tail: nn.Module, tiled: bool) -> Tensor:
    """The tail of the largest phases and a bias (B, h, w, o), given (B, h, w, 4 o); `tiled`: (B, h / 2, w / 2, 4 o)."""
    batch, height, width, _ = phases.shape
    y = _tail(phases.unflatten(3, (4, -1)), bias, tail, width if tiled else 0)
    return y.reshape(batch, height // 2, width // 2, -1) if tiled else y.reshape(batch, height, width, -1)


def paired_tail(phases: Tensor, bias: Tensor, tail: nn.Module) -> Tensor:
    """The tail of the largest phases and a bias (B, h, w, o), given those of two lines each (B, 2 h, w, 2 o)."""
    batch, height, width, _ = phases.shape
    return _tail(phases.unflatten(3, (2, -1)), bias, tail, width).reshape(batch, height // 2, width, -1)


def spread_tail(phases: Tensor, bias: Tensor, tail: nn.Module) -> Tensor:
    """The tail of each phase of a tile and a bias, spread over the map (B, 2 h, 2 w, o), given (B, h, w, 4, o)."""
    batch, height, width, _, outputs = phases.shape
    return _tail(phases.unsqueeze(4), bias, tail, 2 * width).reshape(batch, 2 * height, 2 * width, outputs)


def _tail(phases: Tensor, bias: Tensor, tail: nn.Module, width: int) -> Tensor:
    """The tail of phases (..., P, c) as rows (M, c)."""
    norm = next(tail.children())
    assert isinstance(norm, RMSNorm), norm
    return fused_tail(phases.reshape(-1, *phases.shape[-2:]).contiguous(), bias, norm.weight, norm.eps, width)


@torch.library.custom_op("reverie::tail", mutates_args=())
def fused_tail(phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int) -> Tensor:
    """The tail (M, c) of phases (N, P, c), row by row; or of maps of a width other than 0.

    Of four phases the results are then in the order of tiles; two are followed by two more one line below; one came in
    the order of tiles, and results are in that of rows.
    """
    z = _normal(gathered(phases, width), bias, eps)[0] * scale
    y = F.silu(z.to(phases.dtype))
    return in_tiles(y, width) if phases.shape[1] == 4 else in_rows(y, width) if phases.shape[1] == 1 else y


@torch.library.custom_op("reverie::tail_backward", mutates_args=())
def fused_tail_backward(
    dy: Tensor, phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int
) -> tuple[Tensor, Tensor]:
    """The gradients of the phases (N, P, c), and of bias and scale (2, c)."""
    each, four = phases.shape[1], gathered(phases, width)
    normal, inverse = _normal(four, bias, eps)
    z = (normal * scale).to(phases.dtype).to(normal.dtype)
    dy = in_rows(dy, width) if each == 4 else in_tiles(dy, width) if each == 1 else dy
    dz = dy * z.sigmoid() * (1 + z * (1 - z.sigmoid()))
    d = dz * scale
    d = inverse * (d - normal * (d * normal).mean(-1, keepdim=True))
    top = four == four.amax(1, keepdim=True)
    found = (d / top.sum(1)).unsqueeze(1) * top  # equal phases share the gradient, as torch does it
    if each == 2:
        found = found.reshape(-1, width, 2, 2, found.shape[-1]).transpose(1, 2).reshape(phases.shape)
    return found.to(phases.dtype).contiguous(), torch.stack([d.sum(0), (dz * normal).sum(0)])


def gathered(phases: Tensor, width: int) -> Tensor:
    """Phases side by side (M, 4, c) where two each came in lines so wide; else as they are."""
    if phases.shape[1] != 2:
        return phases
    return phases.unflatten(0, (-1, 2, width)).transpose(1, 2).reshape(-1, 4, phases.shape[-1])


def in_tiles(rows: Tensor, width: int) -> Tensor:
    """Rows (N, c) in the order of 2x2 tiles; of maps that are `width` wide, none if that is 0."""
    return _exchanged(rows, (2, width // 2)) if width else rows


def in_rows(tiles: Tensor, width: int) -> Tensor:
    """Tiles (N, c) in the order of rows again."""
    return _exchanged(tiles, (width // 2, 2)) if width else tiles


def _exchanged(x: Tensor, order: tuple[int, int]) -> Tensor:
    return x.reshape(-1, *order, 2, x.shape[-1]).transpose(1, 2).reshape(x.shape)


def _normal(phases: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The normalised vectors (N, c), and what they were multiplied with (N, 1), in float32 or wider."""
    value = phases.amax(1) + bias.to(phases.dtype)
    value = value.to(torch.promote_types(value.dtype, torch.float32))
    inverse = (value.square().mean(-1, keepdim=True) + eps).rsqrt()
    return value * inverse, inverse


@fused_tail.register_kernel("cuda")
def _forward_on_gpu(phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int) -> Tensor:
    from . import tail_kernels

    return tail_kernels.forward(phases, bias, scale, eps, width)


@fused_tail_backward.register_kernel("cuda")
def _backward_on_gpu(
    dy: Tensor, phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int
) -> tuple[Tensor, Tensor]:
    from . import tail_kernels

    return tail_kernels.backward(dy, phases, bias, scale, eps, width)


@fused_tail.register_fake
def _forward_shapes(phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int) -> Tensor:
    return phases.new_empty(phases.shape[0] // (2 if phases.shape[1] == 2 else 1), phases.shape[2])


@fused_tail_backward.register_fake
def _backward_shapes(
    dy: Tensor, phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(phases), scale.new_empty(2, len(scale))


def _kept(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    phases, bias, scale, ctx.eps, ctx.width = inputs
    ctx.save_for_backward(phases, bias, scale)


def _differentiated(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
    dphases, (dbias, dscale) = fused_tail_backward(dy.contiguous(), *ctx.saved_tensors, ctx.eps, ctx.width)
    return dphases, dbias, dscale, None, None


fused_tail.register_autograd(_differentiated, setup_context=_kept)
