"""The filter over a window by two kernels that stay on the GPU for all of its steps, behind the interface of `Scan`.

Run step by step the filter waits: for the next few of many small kernels to start, and for the same weights to be
read again. Here a kernel keeps the recurrent weights in the registers of the GPU, or sets out for them before they are
needed where they are too many, and its parts wait for one another.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..rssm import RSSM, State
from ..scan import Reverse, Scan
from .program import HALF, Found, Program
from .shape import BATCH

PRODUCTS = {
    "w_summary": "cell.deter_in.0.weight",
    "w_latent": "cell.stoch_in.0.weight",
    "w_mix": "cell.mix.weight",
    "w_gates": "cell.gates.weight",
    "w_seen": "deter_in.weight",
    "w_logits": "posterior_out.weight",
}
"""Weights of products, by their name in the kernels: names in an RSSM."""
VECTORS = {
    "b_summary": "cell.deter_in.0.bias",
    "b_latent": "cell.stoch_in.0.bias",
    "b_mix": "cell.mix.bias",
    "b_gates": "cell.gates.bias",
    "b_seen": "deter_in.bias",
    "b_logits": "posterior_out.bias",
    "n_summary": "cell.deter_in.1.weight",
    "n_latent": "cell.stoch_in.1.weight",
    "n_mix": "cell.tail.0.weight",
    "n_seen": "posterior_net.0.0.weight",
}
"""Biases, and scales of norms."""


class PersistentScan(Scan):
    """Does what `Scan` does: by the kernels of a program where they fit, as `Scan` does where not."""

    def __init__(self, rssm: RSSM, program: Program, backend: str | None = None) -> None:
        super().__init__(rssm, backend)
        self.program = program

    def fits(self, is_first: Tensor, acted: Tensor, embedded: Tensor) -> bool:
        """Whether the kernels can take these inputs (B, T, ...): reports may have fewer windows than updates."""
        kind = is_first.device.type
        half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == HALF
        right = half and acted.dtype == embedded.dtype == HALF
        return right and len(is_first) == BATCH and is_first.shape[1] > 0

    def kernel_weights(self) -> Found:
        """The weights under their names in the kernels: rounded once, biases and norms as they are."""
        halved = self.halved()
        found = {name: halved[f"rssm.{theirs}"].contiguous() for name, theirs in PRODUCTS.items()}
        return found | {name: self.weights[f"rssm.{theirs}"].detach() for name, theirs in VECTORS.items()}

    def operation(self, is_first: Tensor, acted: Tensor, embedded: Tensor) -> type[torch.autograd.Function]:
        """The kernels, where they fit."""
        return Persistent if self.fits(is_first, acted, embedded) else super().operation(is_first, acted, embedded)


class Persistent(torch.autograd.Function):
    """The kernels, with the contract of `Reverse`."""

    @staticmethod
    def forward(
        ctx: Any,
        scan: PersistentScan,
        start: State,
        given: tuple[Tensor, Tensor],
        acted: Tensor,
        embedded: Tensor,
        *_: Tensor,
    ) -> tuple[Tensor, ...]:
        """States and parameters (T, B, ...)."""
        weights, (first, noise) = scan.kernel_weights(), given
        inputs = (first, acted.detach(), embedded.detach(), noise)
        found = scan.program.forward(weights, start, *inputs)
        ctx.scan, ctx.inputs, ctx.kept, ctx.kernel_weights = scan, inputs, found, weights
        device = acted.device.type
        ctx.precision = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        # views of their own: an output that is also kept on ctx would be a cycle, freed too late for graphs
        return tuple(found[name].view(found[name].shape) for name in ("deter", "stoch", "params"))

    @staticmethod
    def backward(ctx: Any, *goals: Tensor) -> tuple[Any, ...]:
        """Gradients of the inputs `acted` and `embedded` and of the weights."""
        by_deter, by_stoch, by_params = (goal.float().contiguous() for goal in goals)
        first, kept = ctx.inputs[0], ctx.kept
        grads = ctx.scan.program.reverse(ctx.kernel_weights, kept, first, (by_deter, by_stoch, by_params))
        before = State(kept["deters"][:-1], kept["stochs"][:-1])
        ctx.kept = ctx.kernel_weights = None
        total = (grads["total_deter"], grads["total_stoch"], by_params)
        return None, None, None, *Reverse.at_once(ctx, before, total)
