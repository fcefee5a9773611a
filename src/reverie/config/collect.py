"""Options of collecting: where acting happens, and where whole episodes are kept."""

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
    address: str = "auto"
    """Ray cluster of the generators: auto finds one on this machine, HOST:PORT is its head, local starts one here."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the generators' copies of the agent act; on a CPU each has one thread."""


@dataclass(frozen=True)
class StoreConfig:
    """Whole episodes as files: written by whoever acts, and learned from by a world model."""

    write: Literal["off", "folder", "mlflow"] = "off"
    """Keep every finished episode: as .npz files in a folder, or as artifacts of the run's MLflow run."""
    folder: str = ""
    """Folder they are written to; empty takes LOGDIR/episodes."""
    keep: int = 0
    """Steps of the newest episodes that the folder keeps; 0 keeps everything."""
    compress: bool = False
    """Compress the files."""
    read: str = ""
    """Episodes to learn from: a folder, or mlflow:RUN for those of an MLflow run at --log.mlflow_uri."""
    order: Literal["all", "newest"] = "all"
    """Read every episode once, oldest first, or the newest alone."""
    newest: int = 100_000
    """How many steps count as newest."""
    every: int = 10_000
    """Steps between two looks for new episodes."""
    live: bool = True
    """Collect, too. False learns from the episodes alone, and a step is then what an update is due for."""
