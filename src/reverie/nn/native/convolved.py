"""The convolutions of a trunk, with their gradients, for a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..conv import Trunk
from .machine import Unfit, machine, ours, plainly
from .program import LANES
from .team import share_out, shares_of

LEAST = 2
"""Images in a share."""


class Convolution(ctypes.Structure):
    """A layer, as convolutions.h has it."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("from_", "to")),
        *((name, ctypes.c_long) for name in ("count", "lines", "length", "apart", "n", "in_", "out")),
        *((name, ctypes.c_void_p) for name in ("values", "there", "back", "sums")),
        ("share", ctypes.c_long),
    ]


class Images(ctypes.Structure):
    """What goes through all layers, as convolutions.h has it."""

    _fields_ = [
        ("bytes", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("height", "line", "begin", "apart")),
        ("layers", ctypes.c_void_p),
        ("count", ctypes.c_long),
        ("goal", ctypes.c_void_p),
    ]


class Geometry:
    """What is known of a convolution before there are weights and images: where its numbers lie."""

    def __init__(self, conv: nn.Conv2d, size: tuple[int, int], beyond: int) -> None:
        self.n, self.padding, (high, wide) = conv.out_channels, int(conv.padding[0]), conv.kernel_size
        if self.n % LANES:
            raise Unfit(f"it has no convolutions to {self.n} channels")
        self.lines, self.length, self.taken = high, wide * conv.in_channels, high * wide * conv.in_channels
        """Lines of a patch, numbers in one, and in all of them."""
        padded = [side + 2 * self.padding for side in size]
        self.apart, self.inputs = padded[1] * conv.in_channels, padded[0] * padded[1] * conv.in_channels
        """From one line of an image to the next, and all of its numbers, those that surround it included."""
        self.size = [(side - kernel) // stride + 1 for side, kernel, stride in zip(padded, (high, wide), conv.stride)]
        rows, columns = (torch.arange(side) for side in self.size)
        line = self.size[1] + 2 * beyond
        self.out, self.beyond = (self.size[0] + 2 * beyond) * line * self.n, beyond
        self.starts = crossed(rows * conv.stride[0], columns * conv.stride[1], padded[1], conv.in_channels)
        self.goals = crossed(rows + beyond, columns + beyond, line, self.n)

    def described(self, values: Tensor) -> Convolution:
        """The layer as C takes it, with room for what it finds."""
        return Convolution(
            from_=self.starts.data_ptr(), to=self.goals.data_ptr(), count=len(self.starts), lines=self.lines,
            length=self.length, apart=self.apart, n=self.n, in_=self.inputs, out=self.out, values=values.data_ptr(),
        )  # fmt: skip

    def room(self, images: int) -> Tensor:
        """Room for what is found in some images; zeros around it where the next layer wants them."""
        return (torch.zeros if self.beyond else torch.empty)(images, self.out)

    def packed(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Weights (n, taken) and biases (n) as products read them (n / 16, 1 + taken, 16)."""
        columns = weight.reshape(-1, LANES, self.taken).transpose(1, 2)
        return torch.cat([bias.reshape(-1, 1, LANES), columns], 1)

    def unpacked(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """The other way round."""
        biases, weights = packed.reshape(-1, 1 + self.taken, LANES).split([1, self.taken], 1)
        return weights.transpose(1, 2).reshape(self.n, self.taken), biases.flatten()

    def packed_back(self, weight: Tensor) -> Tensor:
        """Weights (n, taken) as gradients of inputs read them (taken / 16, n, 16)."""
        return weight.reshape(self.n, -1, LANES).transpose(0, 1).contiguous()


def crossed(rows: Tensor, columns: Tensor, line: int, size: int) -> Tensor:
    """Where pixels are, all rows by all columns, in lines of so many pixels of some numbers each."""
    return ((rows.unsqueeze(1) * line + columns) * size).flatten()


def worthwhile() -> bool:
    """Whether these convolutions are known to be faster than torch's, whose vectors may be wider elsewhere."""
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


class Convolved:
    """Does what a trunk's `_maps` does."""

    def __init__(self, trunk: Trunk) -> None:
        ours(trunk, Trunk)
        if trunk.in_half or any(each.dtype != torch.float32 for each in trunk.parameters()):
            raise Unfit("it computes in float32 alone")
        machine()
        self.trunk = trunk
        self.convs = [conv for conv in trunk.convs if isinstance(conv, nn.Conv2d)]
        self.layers: list[Geometry] = []
        size: Sequence[int] = trunk.shape[:2]
        for number, conv in enumerate(self.convs, 1):
            beyond = int(self.convs[number].padding[0]) if number < len(self.convs) else 0
            self.layers.append(Geometry(conv, (size[0], size[1]), beyond))
            size = self.layers[-1].size

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[Trunk, str]]:
        """A copy of the trunk runs by itself."""
        return plainly, (self.trunk, "_maps")

    def __call__(self, image: Tensor, kind: torch.dtype = torch.float32) -> Tensor:
        """What the last layer finds (B, h * w * n) in images (B, h, w, c)."""
        first, *rest = self.convs
        known = image.dtype == torch.uint8 and image.device.type == "cpu" and image.shape[1:] == self.trunk.shape
        floats = kind == first.weight.dtype == torch.float32
        if not (known and floats) or torch.compiler.is_compiling():
            return Trunk._maps(self.trunk, image, kind)
        weights = [first.weight / 255, *(conv.weight for conv in rest)]  # images go from 0 to 255
        flat = [weight.permute(0, 2, 3, 1).flatten(1) for weight in weights]
        found: Tensor = Differentiable.apply(self, image.contiguous(), *flat, *(conv.bias for conv in self.convs))
        return found

    def there(self, image: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> list[Tensor]:
        """What all layers find."""
        values = [layer.room(len(image)) for layer in self.layers]
        packed = [layer.packed(*pair) for layer, *pair in zip(self.layers, weights, biases)]
        array = self._described(values)
        for each, numbers in zip(array, packed):
            each.there = numbers.data_ptr()
        share_out("convolve", self._task(image, array), len(image), shares_of(len(image), LEAST))
        return values

    def back(
        self, image: Tensor, values: Sequence[Tensor], goal: Tensor, weights: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Gradients of weights and of biases, from those of what the last layer has found."""
        shares = shares_of(len(image), LEAST)
        sums = [torch.zeros(shares, layer.n * (1 + layer.taken)) for layer in self.layers]
        packed = [None, *(layer.packed_back(weight) for layer, weight in zip(self.layers[1:], weights[1:]))]
        array = self._described(values)
        for each, numbers, total in zip(array, packed, sums):
            each.back = None if numbers is None else numbers.data_ptr()
            each.sums, each.share = total.data_ptr(), total.shape[1]
        task = self._task(image, array)
        task.goal = goal.data_ptr()
        share_out("convolve_back", task, len(image), shares)
        found = [layer.unpacked(total.sum(0)) for layer, total in zip(self.layers, sums)]
        return [weight for weight, _ in found], [bias for _, bias in found]

    def _described(self, values: Sequence[Tensor]) -> ctypes.Array[Convolution]:
        return (Convolution * len(values))(*(layer.described(each) for layer, each in zip(self.layers, values)))

    def _task(self, image: Tensor, array: ctypes.Array[Convolution]) -> Images:
        first, (height, width, channels) = self.layers[0], image.shape[1:]
        return Images(
            bytes=image.data_ptr(), height=height, line=width * channels, apart=first.apart,
            begin=first.padding * (first.apart + channels), layers=ctypes.addressof(array), count=len(array),
        )  # fmt: skip


class Differentiable(torch.autograd.Function):
    """Convolutions whose gradients are worked out in C, too; images have none."""

    @staticmethod
    def forward(ctx: Any, convolved: Convolved, image: Tensor, *parameters: Tensor) -> Tensor:
        """What the last layer finds, with weights (n, taken) and then biases (n) of all layers."""
        count = len(parameters) // 2
        values = convolved.there(image, parameters[:count], parameters[count:])
        ctx.convolved, ctx.count = convolved, count
        ctx.save_for_backward(image, *values, *parameters[:count])
        return values[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, goal: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of weights and biases."""
        image, *saved = ctx.saved_tensors
        values, weights = saved[: ctx.count], saved[ctx.count :]
        by_weights, by_biases = ctx.convolved.back(image, values, goal.contiguous(), weights)
        return None, None, *by_weights, *by_biases
