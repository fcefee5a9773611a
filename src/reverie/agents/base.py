"""The contract of agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ..data.rows import Batch
from ..world.dream import Dream

Carry = Any
"""What an agent remembers from row to row; None where it remembers nothing."""

Mode = Literal["train", "sample", "eval"]
"""`train` explores and keeps what learning needs, `sample` draws actions as they are, `eval` takes the best ones."""

MODES: tuple[Mode, ...] = get_args(Mode)

Family = Literal["ppo", "dreamer", "on_policy_ppo", "imagined_ppo", "other"]
"""How an agent learns, as far as its metrics tell of it: the last is anyone else's, of whom nothing is known."""


@dataclass(frozen=True)
class Learned:
    """What one round of learning gives back; both stay on the device."""

    metrics: dict[str, Tensor]
    writeback: Batch = field(default_factory=dict)
    updates: int = 0


@dataclass(frozen=True)
class Media:
    """What an agent has to show of itself now and then; everything stays on the device."""

    metrics: dict[str, Tensor] = field(default_factory=dict)
    dreams: dict[str, Dream] = field(default_factory=dict)
    """Dreams by the name of the video that is made of them."""


def restore_random(generator: torch.Generator, state: Tensor) -> None:
    """Set a generator to a saved state; a state of another kind of device does not fit and is left out."""
    if state.numel() == generator.get_state().numel():
        generator.set_state(state)


class Agent(nn.Module):
    """Acts on rows and learns from them."""

    family: Family = "other"
    """Whose metrics these are: advice and pages of diagnostics go by it."""
    generator: torch.Generator
    """What actions are drawn from; saved and restored with the agent. One that makes none is given one afterwards."""
    rollout: int = 1
    """How many steps of each environment to collect between two rounds of learning."""
    on_policy: bool = False
    """Whether a round learns from rows that were acted upon with the very weights it begins with."""
    acted: int = 0
    """Rows acted upon while training, wherever that was; agents that go by it save it."""
    replays: bool = False
    """Whether rows are kept for `learn_replay`."""
    transient: tuple[str, ...] = ()
    """Columns that acting adds for the next round of learning alone; no replay keeps them."""

    def initial_carry(self, batch: int) -> Carry:
        """What is remembered before the first row of `batch` environments."""
        return None

    def act(self, rows: Batch, carry: Carry, mode: Mode) -> tuple[Batch, Carry]:
        """The columns acting adds to rows (N, ...), `action` among them, and what to remember."""
        raise NotImplementedError

    def published(self) -> list[Tensor]:
        """The weights and statistics, themselves, that acting in training depends on; always in the same order."""
        return list(self.state_dict(keep_vars=True).values())

    @property
    def owed(self) -> int:
        """How many updates on replayed rows are to be made before anything else is collected."""
        return 0

    def learn_rollout(self, rows: Batch) -> Learned:
        """Learn once from the newest rows (T + 1, N, ...), in order; the last of them has no action yet."""
        return Learned({})

    def learn_replay(self, rows: Batch) -> Learned:
        """Learn once from windows of the past (B, T, ...); `writeback` holds what is to be written over their rows."""
        return Learned({})

    def report(self, rows: Batch) -> Media:
        """What windows of the past (B, T, ...) show about the agent, which stays as it is, its generator too."""
        return Media()

    def surprise(self, rows: Batch) -> dict[str, Tensor]:
        """How badly new windows (B, T, ...) were foreseen, as metrics."""
        return {}

    def failures(self) -> Tensor | None:
        """How many updates, or rounds of them, in a row failed for numbers that are not finite; None if not counted."""
        return None

    def schedule(self, progress: float) -> None:
        """Set what changes over a run; progress goes from 0 to 1."""

    def close(self) -> None:
        """End what runs beside the agent."""

    def save(self) -> dict[str, Any]:
        """Everything learned, as tensors and plain values."""
        return {"module": self.state_dict(), "generator": self.generator.get_state()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `save` gave."""
        self.load_state_dict(saved["module"])
        restore_random(self.generator, saved["generator"])
