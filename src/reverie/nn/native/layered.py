"""Dense layers as programs for a CPU, gradients included."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from ..heads import NumberHead
from .back import Recalling, Remembering
from .machine import Unfit, ours, plainly
from .memory import Memory

FEW = 64
"""Rows below which layers are not worth a program."""


class Layered:
    """Does what the `forward` of a module does, which is that of some dense layers."""

    def __init__(self, owner: nn.Module, *layers: nn.Module, memory: Memory | None = None, half: bool = False) -> None:
        ours(owner, NumberHead, nn.Sequential)
        self.owner, self.layers, self.memory = owner, nn.Sequential(*layers), memory or Memory()
        self.weights: list[Tensor] = list(self.layers.parameters())
        first = next((each for each in self.layers.modules() if isinstance(each, nn.Linear)), None)
        if first is None:
            raise Unfit("it has no layers")
        self.inputs = first.in_features
        self.there = program = Remembering(half)
        column, self.outputs = program.dense([(program.load("x", self.inputs), self.inputs)], self.layers)
        program.store("y", column, self.outputs)
        program.finish()
        self.back: dict[tuple[bool, bool], LayersBack] = {}
        """Ways back, by whether the gradients of inputs and of weights are asked for."""
        self.reverse((True, True))  # the largest: that it fits must be known before the way there is gone

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[nn.Module, str]]:
        """A copy of the module runs by itself."""
        return plainly, (self.owner, "forward")

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs (..., n)."""
        few = x.numel() < FEW * self.inputs or not torch.is_grad_enabled()  # without gradients it is for acting
        if few or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            found: Tensor = type(self.owner).forward(self.owner, x)
            return found
        outputs: Tensor = Differentiable.apply(self, x, *self.weights)
        return outputs

    def run(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The outputs (B, n) at inputs (B, k), and what the way back needs."""
        known = self.memory.take(self.owner, x, "outputs")
        if known:
            return known["outputs"], {name: known[name] for name in self.there.remembered}
        outputs = x.new_empty(len(x), self.outputs)
        kept = {name: x.new_empty(len(x), size) for name, size in self.there.remembered.items()}
        self.there.run({"x": x, "y": outputs} | kept, len(x))
        return outputs, kept

    def reverse(self, wanted: tuple[bool, bool]) -> LayersBack:
        """The way back to what gradients are wanted of."""
        if wanted not in self.back:
            self.back[wanted] = LayersBack(self, *wanted)
        return self.back[wanted]


class LayersBack(Recalling):
    """The way back through dense layers."""

    def __init__(self, layered: Layered, by_inputs: bool, by_weights: bool) -> None:
        super().__init__(layered.weights if by_weights else [], layered.there.half)
        x = self.load("x", layered.inputs)
        column, size = self.dense([(x, layered.inputs)], layered.layers)
        forward, shift = list(self.ops), self.width
        self.width *= 2
        self.load("by_y", size, shift + column)
        self.differentiate(forward, shift, [column], () if by_inputs else (x,))
        if by_inputs:
            self.store("by_x", shift + x, layered.inputs)
        self.finish()


class Differentiable(torch.autograd.Function):
    """The programs of layers."""

    @staticmethod
    def forward(ctx: Any, layered: Layered, x: Tensor, *_: Tensor) -> Tensor:
        """The outputs (..., n)."""
        rows = x.reshape(-1, layered.inputs).contiguous()
        outputs, ctx.kept = layered.run(rows)
        ctx.layered, ctx.rows, ctx.shape = layered, rows, x.shape
        return outputs.reshape(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *goals: Tensor) -> tuple[Any, ...]:
        """Gradients of inputs and weights, where they are asked for."""
        by_outputs = goals[0].reshape(-1, ctx.layered.outputs).contiguous()
        by_inputs, by_weights = ctx.needs_input_grad[1], any(ctx.needs_input_grad[2:])
        given = {"x": ctx.rows, "by_y": by_outputs} | ctx.kept
        if by_inputs:
            given["by_x"] = torch.empty_like(ctx.rows)
        found = ctx.layered.reverse((by_inputs, by_weights)).learn(given, len(ctx.rows))
        inputs = given["by_x"].reshape(ctx.shape) if by_inputs else None
        return None, inputs, *(found or [None] * (len(ctx.needs_input_grad) - 2))
