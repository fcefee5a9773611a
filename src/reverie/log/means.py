"""Means of metrics between two writes, kept where the metrics are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

Group = tuple[torch.device, tuple[str, ...]]


class Means:
    """Sums of named metrics. Tensors are summed on their device and cross to the host once, in `take`."""

    def __init__(self) -> None:
        self._sums: dict[Group, tuple[Tensor, int]] = {}
        self._numbers: dict[str, tuple[float, int]] = {}

    def add(self, metrics: Mapping[str, Tensor | float]) -> None:
        """Count one value of each metric; a tensor of several elements counts as its mean."""
        tensors: dict[torch.device, dict[str, Tensor]] = {}
        for name, value in metrics.items():
            if isinstance(value, Tensor):
                tensors.setdefault(value.device, {})[name] = value
            else:
                total, count = self._numbers.get(name, (0.0, 0))
                self._numbers[name] = (total + float(value), count + 1)
        for device, named in tensors.items():
            self._add_tensors((device, tuple(named)), stacked(named.values()))

    def _add_tensors(self, group: Group, values: Tensor) -> None:
        if group not in self._sums:
            self._sums[group] = (values, 1)
            return
        total, count = self._sums[group]
        with torch.no_grad():
            self._sums[group] = (total + values, count + 1)

    def take(self) -> dict[str, float]:
        """The mean of each metric, in the order of names first seen; starts anew."""
        sums: dict[str, tuple[float, int]] = {}
        devices = dict.fromkeys(device for device, _ in self._sums)
        for device in devices:
            groups = [group for group in self._sums if group[0] == device]
            flat = torch.cat([self._sums[group][0] for group in groups]).tolist()  # the only wait for the device
            names = [(name, self._sums[group][1]) for group in groups for name in group[1]]
            for (name, count), value in zip(names, flat):
                total, before = sums.get(name, (0.0, 0))
                sums[name] = (total + value, before + count)
        for name, (value, count) in self._numbers.items():
            total, before = sums.get(name, (0.0, 0))
            sums[name] = (total + value, before + count)
        self._sums, self._numbers = {}, {}
        return {name: total / count for name, (total, count) in sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """What waits for the next write, as tensors and plain values."""
        sums = [(list(names), total, count) for (_, names), (total, count) in self._sums.items()]
        return {"sums": sums, "numbers": dict(self._numbers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, on whatever device it lies now."""
        self._sums = {(total.device, tuple(names)): (total, count) for names, total, count in state["sums"]}
        self._numbers = dict(state["numbers"])


def stacked(values: Iterable[Tensor]) -> Tensor:
    """One float32 vector with the mean of each tensor.

    It is a copy, which matters: a compiled update may write its next metrics into the same memory.
    """
    with torch.no_grad():
        return torch.stack([scalar(value) for value in values])


def scalar(value: Tensor) -> Tensor:
    """The mean of a tensor as float32 (); most metrics are such already and are passed on."""
    if value.dtype == torch.float32 and value.ndim == 0:
        return value
    return value.float().mean()
