"""What `reverie sweep` takes besides the options of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SweepArguments:
    """Train with many settings: a search that learns from the trials before, or a plain grid."""

    configs: tuple[str, ...] = ()
    """Presets or YAML files that all trials have in common, stacked from left to right."""
    space: str = ""
    """YAML file with the options to search, each with low and high or a list of values."""
    grid: tuple[str, ...] = ()
    """Try every combination of NAME=VALUE,VALUE ... or of the lists in a YAML file, instead of a search."""
    trials: int = 20
    """How many trials a search has, over all workers."""
    jobs: int = 0
    """How many trials run at once; 0 takes one for each of --gpus, else one."""
    gpus: tuple[str, ...] = ()
    """Numbers of the GPUs that trials take in turn."""
    metric: str = "eval/mean_return"
    """What is compared: a metric of the log."""
    score: Literal["last", "best", "mean"] = "last"
    """Which of a trial's values is its score."""
    minimize: bool = False
    """Whether less is better."""
    sampler: Literal["tpe", "random"] = "tpe"
    """How a search chooses: by what was good so far, or at random."""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """How a search ends bad trials early, at their evaluations."""
    storage: str = ""
    """Where the study lies: an Optuna URL, or journal:FILE; empty takes study.db in --logdir."""
    study: str = ""
    """Name of the study in the storage; empty takes that of --logdir."""
    pictures: Literal["png", "svg", "pdf"] = "png"
    """Format of the pictures."""
    resume: bool = False
    """Go on with the sweep in --logdir, or join those who work on it."""


CHOSEN = ("trials", "jobs", "gpus", "sampler", "pruner", "storage", "study", "pictures", "resume")
"""What may be given anew when a sweep is resumed."""
