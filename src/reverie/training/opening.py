"""What a run says before it begins: how large the agent is, and what its replay takes when it is full."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from ..agents.base import Agent
from ..agents.dreamer import Dreamer
from ..config.dreamer import ReplayConfig
from ..config.schema import Config
from ..data.rows import FLAGS, Batch
from ..data.storage import (
    Layout,
    Storage,
    bytes_needed,
    bytes_per_step,
    check_fit,
    layout_of,
    place_of,
    rows_of,
    suited,
)
from ..log.sinks.phrases import size

PLACES = {"ram": "in memory", "pinned": "in page-locked memory", "gpu": "on the GPU", "disk": "on disk"}


def size_of_agent(agent: Agent) -> str:
    """How many weights an agent learns, and how many each of its parts has: `118,533 weights (world model 96,...)`."""
    total = f"{weights(agent):,} weights"
    if not isinstance(agent, Dreamer):
        return total
    parts: dict[str, nn.Module] = {"world model": agent.world}
    parts |= {"actor": agent.behavior.actor, "critic": agent.behavior.critic}
    parts |= {name: policy for name, policy in agent.policies.items() if policy is not agent.behavior}
    return f"{total} ({', '.join(f'{name} {weights(part):,}' for name, part in parts.items())})"


def weights(module: nn.Module) -> int:
    """The number of weights that learn; averages of others do not count."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def size_of_replay(layout: Layout, config: ReplayConfig, envs: int, storage: Storage) -> str:
    """What a replay takes: `replay: 100,000 steps of 179 bytes, 17.9 MB in memory when full`."""
    steps, needed = rows_of(config.capacity, envs) * envs, bytes_needed(layout, config.capacity, envs)
    each = bytes_per_step(layout)
    return f"replay: {steps:,} steps of {each:,} bytes, {size(needed)} {PLACES[storage]} when full"


def replay_place(
    config: Config, agent: Agent, observation: spaces.Dict, device: torch.device
) -> tuple[Layout, Storage, str]:
    """What the replay holds, where it is to live, and a line about it; refused where it would not fit when full."""
    settings, folder, count = config.replay, Path(config.logdir) / "replay", config.envs.count
    if settings.storage != "auto":
        place_of(settings.storage, device)
    layout = layout_of_rows(agent, observation, count, device)
    layout = {name: each for name, each in layout.items() if name not in agent.transient}
    storage = settings.storage
    if storage == "auto":
        storage = suited(layout, settings.capacity, count, device)
    check_fit(layout, settings.capacity, count, storage, device, folder)
    return layout, storage, size_of_replay(layout, settings, count, storage)


def layout_of_rows(agent: Agent, observation: spaces.Dict, envs: int, device: torch.device) -> Layout:
    """What the rows of a run will hold, found by acting once on blank ones; the agent stays as it was."""
    rows: Batch = {key: torch.from_numpy(blank(space, envs)).to(device) for key, space in observation.items()}
    rows["reward"] = torch.zeros(envs, device=device)
    rows |= {name: torch.full((envs,), name == "is_first", device=device) for name in FLAGS}
    saved = agent.save()
    added, _ = agent.act(rows, agent.initial_carry(envs), "train")
    agent.restore(saved)
    return layout_of({name: value.unsqueeze(0) for name, value in (rows | added).items()})


def blank(space: spaces.Space, envs: int) -> np.ndarray:
    """Zeros as observations of that space."""
    return np.zeros((envs, *(space.shape or ())), space.dtype)
