"""Made-up rows: what environments of some spaces could show, without any of them."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from ..agents.base import Agent
from ..data.replay import Replay
from ..data.rows import FLAGS, Batch
from ..data.storage import Layout
from ..envs.form import is_image
from ..training.opening import layout_of_rows

ENDS = 0.01
"""The share of rows that end an episode."""
CHUNK = 512
"""Steps, over all environments, that are made up at a time."""
ACTIONS = 64
"""Different actions that are drawn."""


class Fiction:
    """Rows of a task's spaces with random numbers in them, as an agent that acts in it would have them stored."""

    def __init__(
        self, agent: Agent, observation: spaces.Dict, action: spaces.Space, envs: int, device: torch.device
    ) -> None:
        self.agent, self.observation, self.envs, self.device = agent, observation, envs, device
        self.layout: Layout = layout_of_rows(agent, observation, envs, device)
        self.random = np.random.default_rng(0)
        self.actions = drawn_actions(action)

    def rows(self, length: int) -> Batch:
        """Rows (T, N, ...) with every column they are stored with; latents are zero."""
        lead = (length, self.envs)
        last = self.random.random(lead) < ENDS
        found: dict[str, np.ndarray] = {
            key: observed(space, lead, self.random) for key, space in self.observation.items()
        }
        found["reward"] = self.random.standard_normal(lead)
        found["action"] = self.actions[self.random.integers(ACTIONS, size=lead)]
        found |= zip(FLAGS, (np.roll(last, 1, 0), last, last & (self.random.random(lead) < 0.5)))
        return {
            name: torch.from_numpy(found[name]).to(self.device, dtype)
            if name in found
            else torch.zeros(*lead, *shape, dtype=dtype, device=self.device)
            for name, (shape, dtype) in self.layout.items()
        }

    def played(self, length: int) -> Batch:
        """Rows (T, N, ...) with what this agent adds when it acts on them."""
        rows, carry = self.rows(length), self.agent.initial_carry(self.envs)
        added: list[Batch] = []
        for t in range(length):
            columns, carry = self.agent.act({name: value[t] for name, value in rows.items()}, carry, "train")
            added.append(columns)
        return rows | {name: torch.stack([each[name] for each in added]) for name in added[0]}

    def fill(self, replay: Replay, steps: int, batch: int, length: int) -> None:
        """Add rows until a replay holds so many steps, or all it can, and has the windows of a batch."""
        steps = min(steps, replay.rows * replay.envs)
        while len(replay) < steps or not replay.ready(batch, length):
            replay.add(self.rows(max(1, CHUNK // self.envs)))


def observed(space: spaces.Space, lead: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Observations (*lead, ...) of a space of the standard form."""
    shape = (*lead, *(space.shape or ()))
    if is_image(space):
        return random.integers(0, 256, shape, np.uint8)
    if isinstance(space, spaces.Box):
        # bounds may be as wide as the type, and numbers that large would not leave an update finite
        return np.clip(random.standard_normal(shape), space.low, space.high)
    if isinstance(space, spaces.Discrete):
        return random.integers(0, int(space.n), shape)
    return random.integers(0, space.nvec if isinstance(space, spaces.MultiDiscrete) else 2, shape)


def drawn_actions(space: spaces.Space, count: int = ACTIONS) -> np.ndarray:
    """Random actions (count, ...) of a space of the standard form."""
    space.seed(0)
    return np.stack([space.sample() for _ in range(count)])
