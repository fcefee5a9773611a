"""Steps of an optimiser for a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import MethodType

import torch
from torch import Tensor

from ..optim import BETAS, BLOCK, Stepper
from .machine import Unfit, machine, ours, plainly


class Descent(ctypes.Structure):
    """One step, as descent.h has it."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("flat", "gradient", "mean", "square", "sizes", "groups")),
        ("count", ctypes.c_long),
        *((name, ctypes.c_float) for name in ("share", "agc", "by_mean", "by_square", "mean_seen", "size_seen")),
        *((name, ctypes.c_float) for name in ("rate", "decay", "eps")),
        ("laprop", ctypes.c_long),
    ]


class NativeStep:
    """Does what `Stepper.step` does; gradients are left as they were found."""

    def __init__(self, stepper: Stepper) -> None:
        ours(stepper, Stepper)
        if stepper.flat.dtype != torch.float32 or stepper.flat.device.type != "cpu":
            raise Unfit("it computes in float32 on a CPU alone")
        self.stepper, self.library = stepper, machine()
        sizes, groups = parts(stepper)
        self.sizes, self.groups = (ctypes.c_long * len(sizes))(*sizes), (ctypes.c_long * len(groups))(*groups)

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[Stepper, str]]:
        """A copy of the optimiser steps by itself."""
        return plainly, (self.stepper, "step")

    @torch.no_grad()
    def __call__(self, norm: Tensor, finite: Tensor) -> None:
        """Step down the gradients that a backward pass has left, if they are finite."""
        if not finite:
            return
        stepper, config = self.stepper, self.stepper.config
        count, length = stepper.count.add_(1), float(norm)
        warm = min(1.0, float(count) / config.warmup) if config.warmup else 1.0
        places = {name: getattr(stepper, name).data_ptr() for name in ("flat", "gradient", "mean", "square")}
        step = Descent(
            **places, sizes=ctypes.addressof(self.sizes), groups=ctypes.addressof(self.groups), count=len(self.sizes),
            share=min(1.0, config.clip / (length + 1e-6)) if config.clip > 0 else 1.0, agc=config.agc,
            by_mean=1 - BETAS[0], by_square=1 - BETAS[1],
            mean_seen=float(1 - BETAS[0] ** count), size_seen=float(1 - BETAS[1] ** count),
            rate=config.lr * float(stepper.share) * warm, decay=config.decay, eps=config.eps,
            laprop=int(config.kind == "laprop"),
        )  # fmt: skip
        self.library.descend(ctypes.byref(step))


def parts(stepper: Stepper) -> tuple[list[int], list[int]]:
    """How many numbers each parameter has, or each part of one that is cut in parts, and with which it is cut."""
    sizes: list[int] = []
    places: list[int] = []
    groups: list[int] = []
    for number, (parameter, blocks) in enumerate(zip(stepper.parameters, stepper.blocks)):
        places.append(len(sizes))
        if number in stepper.apart:
            rows = parameter.numel() // len(parameter)
            sizes += [size * rows for size in stepper.apart[number]]
            groups += range(places[number], len(sizes))
            sizes[-1] += BLOCK * blocks - parameter.numel()  # what lies between parameters is 0
        else:
            sizes.append(BLOCK * blocks)
            groups.append(places[stepper.groups[number]])
    return sizes, groups
