"""Options of collecting: where acting happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CollectConfig:
    """Who collects rows: the process that learns, or generators with copies of the agent."""

    mode: Literal["inline", "process", "ray"] = "inline"
    """In the process that learns, in generator processes on this machine, or as actors of a Ray cluster."""
    generators: int = 0
    """How many generators share the environments; 0 takes one per core, at most one per environment."""
    rows: int = 16
    """Rows of each environment that a generator hands over at a time. PPO's rollouts travel whole."""
    ahead: int = 2
    """How many such lots a generator may collect before the learner has taken them. PPO's generators wait for it."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the generators' copies of the agent act; on a CPU each has one thread."""
