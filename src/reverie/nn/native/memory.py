"""What layers have found in the course of an update."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

Kept = dict[str, Tensor]
"""What layers have found at inputs (B, k), by name: `outputs` (B, n), what is `expected` (B, 1), `kept0`, ... for the
way back."""


class Known(NamedTuple):
    """Inputs (B, k) of layers as they were, and what was found at the first of them."""

    inputs: Tensor
    version: int
    found: Kept


class Memory:
    """What was worked out without gradients and need not be worked out again with them, or by something else.

    It lasts for an update (`with memory:`), in which weights stay as they are.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], Known] = {}
        self.lasts = False

    def __enter__(self) -> None:
        self.lasts = True

    def __exit__(self, *error: object) -> None:
        self.known, self.lasts = {}, False

    def put(self, owner: object, inputs: Tensor, found: Kept) -> None:
        """Remember what an owner of layers has found."""
        if self.lasts:
            self.known[id(owner), inputs.data_ptr()] = Known(inputs, inputs._version, found)

    def take(self, owner: object, inputs: Tensor, name: str) -> Kept:
        """What that owner has found at inputs which are the first of those it knows, a name among it; or nothing."""
        known = self.known.get((id(owner), inputs.data_ptr()))
        if known is None or known.inputs._version != known.version or name not in known.found:
            return {}
        found = {name: each[: len(inputs)] for name, each in known.found.items()}
        return found if len(found[name]) == len(inputs) else {}
