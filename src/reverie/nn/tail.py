"""What follows a folded convolution: the largest of four phases, bias, RMS norm and SiLU, as one operation.

On a GPU it is a kernel each way, on a CPU the formulas below. Pixels are rows here: phases (N, 4, c), results (N, c).
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
    norm = next(tail.children())
    assert isinstance(norm, RMSNorm), norm
    batch, height, width, _ = phases.shape
    rows = phases.reshape(-1, 4, len(bias)).contiguous()
    y = fused_tail(rows, bias, norm.weight, norm.eps, width if tiled else 0)
    return y.reshape(batch, height // 2, width // 2, -1) if tiled else y.reshape(batch, height, width, -1)


@torch.library.custom_op("reverie::tail", mutates_args=())
def fused_tail(phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int) -> Tensor:
    """The tail (N, c) of phases (N, 4, c): row by row, or tile by tile of maps of a width other than 0."""
    z = _normal(phases, bias, eps)[0] * scale
    return in_tiles(F.silu(z.to(phases.dtype)), width)


@torch.library.custom_op("reverie::tail_backward", mutates_args=())
def fused_tail_backward(
    dy: Tensor, phases: Tensor, bias: Tensor, scale: Tensor, eps: float, width: int
) -> tuple[Tensor, Tensor]:
    """The gradients of the phases (N, 4, c), and of bias and scale (2, c)."""
    normal, inverse = _normal(phases, bias, eps)
    z = (normal * scale).to(phases.dtype).to(normal.dtype)
    dz = in_rows(dy, width) * z.sigmoid() * (1 + z * (1 - z.sigmoid()))
    d = dz * scale
    d = inverse * (d - normal * (d * normal).mean(-1, keepdim=True))
    top = phases == phases.amax(1, keepdim=True)
    dphases = (d / top.sum(1)).unsqueeze(1) * top  # equal phases share the gradient, as torch does it
    return dphases.to(phases.dtype), torch.stack([d.sum(0), (dz * normal).sum(0)])


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
    return phases.new_empty(phases.shape[0], phases.shape[2])


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
