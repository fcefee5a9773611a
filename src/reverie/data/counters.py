"""What a run has counted so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

COUNTED = ("step", "frames", "updates", "episodes", "elapsed")
"""What a checkpoint keeps. The budget is not among it: a resumed run may be given a larger one."""


@dataclass
class Counters:
    """How far a run is; all parts of a resumed run count."""

    step: int = 0
    """Agent actions, over all environments."""
    frames: int = 0
    """Emulator frames, over all environments."""
    updates: int = 0
    """Optimiser steps."""
    episodes: int = 0
    """Finished training episodes."""
    elapsed: float = 0.0
    """Seconds of training."""
    total: int = 0
    """Budget in steps; 0 where there is none."""

    @property
    def progress(self) -> float:
        """The part of the budget that is spent, 0 to 1; 0 where there is no budget."""
        return min(1.0, self.step / self.total) if self.total else 0.0

    def state_dict(self) -> dict[str, int | float]:
        """The counts as plain numbers."""
        return {name: getattr(self, name) for name in COUNTED}

    def load_state_dict(self, state: Mapping[str, int | float]) -> None:
        """Take back what `state_dict` gave."""
        for name in COUNTED:
            setattr(self, name, type(getattr(self, name))(state[name]))
