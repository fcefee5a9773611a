"""How far the predictions of several networks lie from each other: what a world model does not know yet."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

TINY = 1e-12
"""Added under a root, whose slope at 0 is infinite: networks that agree would give gradients that are not numbers."""


def variance(guesses: Tensor) -> Tensor:
    """The variance (...) over members of what they predict (K, ..., n), mean over the n entries."""
    return guesses.var(0).mean(-1)


def deviation(guesses: Tensor) -> Tensor:
    """The standard deviation (...) over members of what they predict (K, ..., n), mean over the n entries."""
    return (guesses.var(0) + TINY).sqrt().mean(-1)


MEASURES: dict[str, Callable[[Tensor], Tensor]] = {"std": deviation, "variance": variance}
