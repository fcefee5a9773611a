"""The filter over a window as one differentiable operation, faster than a loop that torch differentiates.

Torch would work out the gradients of all weights at every step and add them up. Here a loop backwards carries only the
gradients of the states; those of weights and inputs then come from all steps at once, in a few large products.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..nn.halved import Halved
from .rssm import RSSM, State

Weights = dict[str, Tensor]

IDLE = ("rssm.prior_net.", "rssm.prior_out.", "rssm.embed_in.", "rssm.cell.action_in.")
"""Weights that no step uses, unless the first state is learned and draws on the prior."""


class Filter(nn.Module):
    """One step of the filter, as a module whose weights can be handed in."""

    def __init__(self, rssm: RSSM) -> None:
        super().__init__()
        self.rssm = rssm

    def forward(self, state: State, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Deterministic state, latent and its parameters."""
        after, params = self.rssm.filter(state, *inputs)
        return after.deter, after.stoch, params


class Scan:
    """Does what `RSSM.scan` does, compiled by a backend of torch if one is named."""

    def __init__(self, rssm: RSSM, backend: str | None = None) -> None:
        self.filter = Filter(rssm)
        self.halved = Halved(self.filter, IDLE if rssm.start is None else ())
        self.weights = self.halved.weights
        self.step = self.all_steps = self._step
        if backend is not None:  # separately, since shapes differ
            self.step = torch.compile(self._step, backend=backend, dynamic=False)
            self.all_steps = torch.compile(self._step, backend=backend, dynamic=False)

    def _step(self, weights: Weights, state: State, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return functional_call(self.filter, weights, (state, *inputs))

    def __call__(
        self, start: State, is_first: Tensor, acted: Tensor, embedded: Tensor, noise: Tensor
    ) -> tuple[State, Tensor]:
        """States (B, T) of a window and the parameters of their latents."""
        # steps first, so that every step's tensors lie together
        first, act, seen, shake = (x.transpose(0, 1).contiguous() for x in (is_first, acted, embedded, noise))
        operation = self.operation(is_first, acted, embedded)
        found = operation.apply(self, start.detach(), (first, shake), act, seen, *self.weights.values())
        deter, stoch, params = (x.transpose(0, 1) for x in found)
        return State(deter, stoch), params

    def operation(self, is_first: Tensor, acted: Tensor, embedded: Tensor) -> type[torch.autograd.Function]:
        """What runs over a window (B, T, ...) and back."""
        return Reverse


class Reverse(torch.autograd.Function):
    """The loop and its way back."""

    @staticmethod
    def forward(
        ctx: Any, scan: Scan, start: State, given: tuple[Tensor, Tensor], acted: Tensor, embedded: Tensor, *_: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """States and parameters (T, B, ...)."""
        weights, inputs = scan.halved(), (given[0], acted.detach(), embedded.detach(), given[1])
        before, after = [], []
        deter, stoch = start
        with torch.enable_grad():
            for each in zip(*inputs):
                leaf = State(deter.detach().requires_grad_(), stoch.detach().requires_grad_())
                deter, stoch, params = scan.step(weights, leaf, *each)
                before.append(leaf)
                after.append((deter, stoch, params))
        ctx.scan, ctx.inputs, ctx.before, ctx.after = scan, inputs, before, after
        device = deter.device.type
        ctx.precision = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        deters, stochs, all_params = (torch.stack([x.detach() for x in parts]) for parts in zip(*after))
        return deters, stochs, all_params

    @staticmethod
    def backward(ctx: Any, *goals: Tensor) -> tuple[Any, ...]:
        """Gradients of the inputs `acted` and `embedded` and of the weights."""
        by_deter, by_stoch, by_params = (goal.contiguous() for goal in goals)
        total = State(torch.empty_like(by_deter), torch.empty_like(by_stoch))
        carried = State(*(torch.zeros_like(x) for x in ctx.before[-1]))
        for t in reversed(range(len(ctx.before))):
            torch.add(by_deter[t], carried.deter, out=total.deter[t])
            torch.add(by_stoch[t], carried.stoch, out=total.stoch[t])
            wanted = (total.deter[t], total.stoch[t], by_params[t])
            carried = State(*torch.autograd.grad(ctx.after[t], ctx.before[t], wanted))
        before = State(*(torch.stack([x.detach() for x in parts]) for parts in zip(*ctx.before)))
        ctx.before, ctx.after = [], []
        return None, None, None, *Reverse.at_once(ctx, before, (*total, by_params))

    @staticmethod
    def at_once(ctx: Any, before: State, goals: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        """Gradients of everything but the states, given those of all states, from all steps as one batch."""
        scan: Scan = ctx.scan
        device, kind, enabled = ctx.precision
        is_first, acted, embedded, noise = (x.flatten(0, 1) for x in ctx.inputs)
        leaves = [acted.requires_grad_(), embedded.requires_grad_()]
        weights = {name: weight.detach().requires_grad_() for name, weight in scan.weights.items()}
        leaves += weights.values()
        with torch.enable_grad(), torch.autocast(device, kind, enabled=enabled):
            found = scan.all_steps(weights, before.flat(), is_first, acted, embedded, noise)
        goals = tuple(goal.flatten(0, 1) for goal in goals)
        grads = torch.autograd.grad(found, leaves, goals, allow_unused=True)
        shape = ctx.inputs[0].shape
        return *(grad if grad is None else grad.unflatten(0, shape) for grad in grads[:2]), *grads[2:]
