"""The layout everything shares: rows.

A row is what one environment shows at one step: observations by key, `reward`, `is_first`, `is_last`, `is_terminal`,
then what acting added (`action`, `logp`, `value`, ...). `action[t]` is chosen after seeing row t and is paid by
`reward[t + 1]`. A time-out is `is_last` without `is_terminal`. The action of a row with `is_last` is never played: the
next row is the first of a new episode. docs/rows.md has the legend of shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # environment workers import this file and must start without torch
    from torch import Tensor

Batch = dict[str, "Tensor"]
"""Rows as tensors, with two leading dimensions."""

Rows = dict[str, np.ndarray]
"""Rows of N environments at one step, as arrays with leading (N,)."""

FLAGS = ("is_first", "is_last", "is_terminal")
RESERVED = ("reward", *FLAGS, "action", "logp", "value", "deter", "stoch", "index", "continues", "priority")
"""Keys an observation must not have."""


@dataclass(frozen=True)
class Episode:
    """What is known of one finished episode; the score is raw, before any clipping or scaling of rewards."""

    env: int
    score: float
    length: int
    broken: bool = False
    summary: dict[str, float] = field(default_factory=dict)
    """A suite's own figures at the end of an episode, such as `success`."""
