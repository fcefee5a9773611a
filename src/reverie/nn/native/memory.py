"""What layers have found in the course of an update."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Found(NamedTuple):
    """Inputs (B, k) of layers as they were, the outputs (B, n) at the first of them, and what the way back needs."""

    inputs: Tensor
    version: int
    outputs: Tensor
    kept: dict[str, Tensor]


class Memory:
    """Outputs that were worked out without gradients and need not be worked out again with them.

    It lasts for an update (`with memory:`), in which weights stay as they are.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], Found] = {}
        self.lasts = False

    def __enter__(self) -> None:
        self.lasts = True

    def __exit__(self, *error: object) -> None:
        self.found, self.lasts = {}, False

    def put(self, owner: object, inputs: Tensor, outputs: Tensor, kept: dict[str, Tensor]) -> None:
        """Remember what an owner of layers has found."""
        if self.lasts:
            self.found[id(owner), inputs.data_ptr()] = Found(inputs, inputs._version, outputs, kept)

    def take(self, owner: object, inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]] | None:
        """What that owner has found at inputs which are the first of those it knows."""
        found = self.found.get((id(owner), inputs.data_ptr()))
        if found is None or found.inputs._version != found.version or len(inputs) > len(found.outputs):
            return None
        count = len(inputs)
        return found.outputs[:count], {name: each[:count] for name, each in found.kept.items()}
