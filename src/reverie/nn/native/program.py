"""Programs of layers for the machine: which columns of a row an operation reads and writes, and with which weights."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, auto
from typing import Any

import torch
from torch import Tensor, nn

from ..layers import BlockLinear, RMSNorm
from .machine import Manner, Op, Task, Unfit, machine
from .team import share_out, shares_of

LANES = 16
"""Columns are laid out in multiples of this, as in machine.h."""
EVEN = 32
"""Layers whose widths are multiples of this can be taken in bfloat16, see halves.h."""
ALWAYS = 1 << 40
"""More steps than there are."""
LAST = -1
"""The last step."""
TILES = (12, 48)
"""The fewest and the most rows that go through all steps together."""
CACHE = 1 << 19
"""Bytes that the columns of such rows should not exceed."""
MOST = 1 << 20
"""Weights of a program: more would be read from memory again and again."""
LEAST = 8
"""Rows below which a thread more is not worth it."""


class Kind(IntEnum):
    """Operations, in the order of machine.c."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[Any]) -> int:
        return count

    LINEAR = auto()
    WEIGH = auto()
    NORM = auto()
    NORM_BACK = auto()
    GATED = auto()
    GATED_BACK = auto()
    CLASSES = auto()
    CLASSES_BACK = auto()
    DRAW = auto()
    RESET = auto()
    LIMIT = auto()
    NORMAL = auto()
    EXPECT = auto()
    SIGMOID = auto()
    ENTROPY = auto()
    ENTROPY_BACK = auto()
    LOAD = auto()
    STORE = auto()
    ADD = auto()
    COPY = auto()
    CHOOSE = auto()
    SURROGATE = auto()


ACTIVATIONS: tuple[type[nn.Module], ...] = (nn.SiLU, nn.Tanh, nn.ReLU)
"""In the order of machine.c, where 0 is none."""


class Program:
    """Operations on the columns of rows, for every step of a sequence."""

    def __init__(self, half: bool = False) -> None:
        self.half = half
        """Whether products are taken in bfloat16, where their widths allow it."""
        self.width = self.widest = 0
        self.ops: list[Op] = []
        self.kept: list[Tensor] = []
        """What operations point at."""
        self.places: dict[nn.Parameter, int] = {}
        """Where parameters lie, which something else may move."""
        self.data: dict[str, int] = {}
        """Numbers of the operations that load or store what a run is given, by its name."""
        self.steps = (0, ALWAYS)
        """When operations that are added from here on run."""
        self.weights: dict[int, Tensor] = {}
        """Weights (blocks, inputs, outputs) of the products, by the number of the operation."""
        self.remembered: dict[str, int] = {}
        """Names and widths of what is kept for the way back."""

    def columns(self, count: int) -> int:
        """The first of so many new columns."""
        first = self.width
        self.width += (-(-count // LANES) + 1) * LANES  # products of an odd width write some zeros behind themselves
        return first

    def add(self, kind: Kind, **fields: Any) -> None:
        """Add an operation."""
        self.ops.append(Op(kind=kind, from_=self.steps[0], until=self.steps[1], **({"groups": 1} | fields)))

    def pointer(self, tensor: Tensor) -> int:
        """Where a tensor's numbers lie, which must not move."""
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            raise Unfit("it computes in float32 on a CPU alone")
        self.kept.append(tensor)
        if isinstance(tensor, nn.Parameter):
            self.places[tensor] = tensor.data_ptr()
        return tensor.data_ptr()

    def load(self, name: str, count: int, into: int | None = None) -> int:
        """The columns that a row of a named tensor is read into."""
        into = self.columns(count) if into is None else into
        self.data[name] = len(self.ops)
        self.add(Kind.LOAD, a=into, k=count)
        return into

    def store(self, name: str, column: int, count: int) -> None:
        """Write columns to a named tensor."""
        self.data[name] = len(self.ops)
        self.add(Kind.STORE, a=column, k=count)

    def apart(self, column: int, size: int) -> int:
        """Where a norm of columns goes: to their place, as nothing else reads what was there."""
        return column

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Columns that are taken inside may be taken again after it: fewer stay in the cache better."""
        before = self.width
        yield
        self.widest, self.width = max(self.widest, self.width), before

    def keep(self, column: int, count: int) -> None:
        """Say that the way back needs what products have put into these columns."""

    def linear(self, parts: list[tuple[int, int]], layer: nn.Linear, into: int | None = None) -> int:
        """A linear layer over columns that lie apart, as (first, count); added to what is there if `into` is given."""
        offset = 0
        out = self.columns(layer.out_features) if into is None else into
        for index, (column, count) in enumerate(parts):
            weight = layer.weight[:, offset : offset + count].T.unsqueeze(0)
            self.blocks(column, out, weight, None if index else layer.bias, index > 0 or into is not None, (0, 0))
            offset += count
        self.pointer(layer.weight)
        return out

    def blocks(
        self, column: int, out: int, weight: Tensor, bias: Tensor | None, add: bool, steps: tuple[int, int]
    ) -> None:
        """Blocks of columns times a weight (blocks, inputs, outputs) each; `steps` lie between blocks in and out."""
        weight = weight.detach()
        groups, inputs, outputs = weight.shape
        packed = torch.empty(groups * -(-outputs // LANES) * (inputs + 1) * LANES)
        self.add(
            Kind.LINEAR, a=column, b=out, k=inputs, n=outputs, groups=groups, add=int(add), in_step=steps[0],
            out_step=steps[1], source_step=weight.stride(0), k_stride=weight.stride(1), n_stride=weight.stride(2),
            weight=self.pointer(weight), bias=None if bias is None else self.pointer(bias), packed=self.pointer(packed),
            half=int(self.half and not any(each % EVEN for each in (inputs, outputs, *steps))),
        )  # fmt: skip
        self.weights[len(self.ops) - 1] = weight

    def tail(self, column: int, size: int, parts: list[nn.Module]) -> int:
        """The columns after normalisation and activation."""
        norm = parts[0] if len(parts) == 2 else None
        known = type(parts[-1]) in ACTIVATIONS and len(parts) <= 2
        if not known or not isinstance(norm, RMSNorm | nn.LayerNorm | None):
            raise Unfit(f"it has no {' after '.join(type(part).__name__ for part in reversed(parts))}")
        return self.norm(column, size, norm, type(parts[-1]))

    def norm(self, column: int, size: int, norm: RMSNorm | nn.LayerNorm | None, active: type[nn.Module] | None) -> int:
        """The normalised columns, through an activation if there is one."""
        self.keep(column, size)
        into = self.apart(column, size)
        scale = torch.ones(size) if norm is None else norm.weight
        bias = norm.bias if isinstance(norm, nn.LayerNorm) else torch.zeros(size)
        self.add(
            Kind.NORM, a=column, b=into, k=size, eps=0.0 if norm is None else norm.eps,
            active=0 if active is None else ACTIVATIONS.index(active) + 1,
            center=2 if norm is None else int(isinstance(norm, nn.LayerNorm)),
            weight=self.pointer(scale), bias=self.pointer(bias),
        )  # fmt: skip
        return into

    def dense(self, parts: list[tuple[int, int]], layers: nn.Sequential) -> tuple[int, int]:
        """Dense layers over columns (first, count); where their outputs lie and how many there are."""
        flat = [each for each in layers.modules() if type(each) is not nn.Sequential]
        while flat:
            (column, size), layer = parts[0], flat.pop(0)
            if isinstance(layer, nn.Linear):
                column, size = self.linear(parts, layer), layer.out_features
            else:
                tail = [layer]
                while flat and not isinstance(flat[0], nn.Linear):
                    tail.append(flat.pop(0))
                column = self.tail(column, size, tail)
            parts = [(column, size)]
        return parts[0]

    def block_linear(self, column: int, out: int, layer: BlockLinear) -> None:
        """A block-diagonal layer."""
        _, inputs, outputs = layer.weight.shape
        self.blocks(column, out, layer.weight, layer.bias, False, (inputs, outputs))
        self.pointer(layer.weight)

    def finish(self) -> None:
        """Make the program ready to run: nothing more is added."""
        size = sum(weight.numel() for weight in self.weights.values())
        if size > MOST:
            raise Unfit(f"its {size:,} weights do not fit a cache")
        self.width = max(self.width, self.widest)
        self.width += LANES * (self.width // LANES % 2 == 0)  # rows an even number of lines apart share a cache's sets
        self.library, self.array = machine(), (Op * len(self.ops))(*self.ops)

    def run(self, given: dict[str, Tensor], rows: int, steps: int = 1) -> None:
        """Run over all rows, each through all steps; what is given has a shape (steps, rows, n) or (rows, n)."""
        self.work(self.bound(given, rows, steps), self.shares(rows), rows, steps)

    def shares(self, rows: int) -> int:
        """In how many shares threads work at so many rows: more than there are threads, but none of a few rows."""
        return max(1, min(torch.get_num_threads(), rows // LEAST), shares_of(rows, TILES[1]))

    def work(self, array: ctypes.Array[Op], shares: int, rows: int, steps: int, backwards: bool = False) -> None:
        """Let threads take shares of the rows."""
        self.library.prepare(array, len(array))
        manner = self.manner(-(-rows // shares), steps, backwards)
        share_out("run_task", Task(ctypes.addressof(array), len(array), manner), rows, shares)

    def moved(self) -> bool:
        """Whether weights lie elsewhere than when the program was made."""
        return any(each.data_ptr() != place for each, place in self.places.items())

    def manner(self, rows: int, steps: int = 1, backwards: bool = False) -> Manner:
        """How a share of so many rows goes through the program."""
        tile = min(rows, max(TILES[0], min(TILES[1], CACHE // (4 * self.width) // 6 * 6)))
        return Manner(self.width, steps, int(backwards), tile)

    def bound(self, given: dict[str, Tensor], rows: int, steps: int) -> ctypes.Array[Op]:
        """The operations of one run, which point at what is given: C reads and writes wherever they point."""
        array = type(self.array).from_buffer_copy(self.array)
        if given.keys() != self.data.keys():
            raise ValueError(f"a program takes {', '.join(self.data)}, and not {', '.join(given)}")
        for name, tensor in given.items():
            op = array[self.data[name]]
            times = steps - 1 if op.until == LAST else steps
            right = tensor.shape in ((rows, op.k), (times, rows, op.k)) and (op.k == 1 or tensor.stride(-1) == 1)
            if not right or tensor.dtype != torch.float32 or tensor.device.type != "cpu":
                raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not of a program for {rows} rows")
            op.data, op.row_stride = tensor.data_ptr(), tensor.stride(-2)
            op.step_stride = tensor.stride(0) if tensor.dim() == 3 else 0
        if self.moved():
            raise RuntimeError("weights have moved since their program was made: take --run.fast off")
        return array
