"""The configuration beside a run: written once, enough to repeat the run, compared when it is resumed."""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError
from .options import flattened, replaced
from .presets import dotted, read_yaml
from .schema import Config
from .whole import write_whole

NAME = "config.yaml"

CHANGEABLE = ("logdir", "device", "run.", "log.", "envs.timeout", "envs.max_restarts", "envs.checks", "envs.workers",
              "collect.", "store.", "explore.until", "explore.fit", "explore.show")  # fmt: skip
"""Options (or groups of them) that may differ when a run is resumed."""


def save(config: Config, folder: Path, name: str = NAME) -> None:
    """Write the resolved configuration into a run's folder."""
    text = yaml.safe_dump(_plain(asdict(config)), sort_keys=False)
    write_whole(folder / name, lambda file: file.write(text.encode()))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def load(folder: Path) -> Config:
    """The configuration of the run in a folder."""
    if not folder.is_dir():
        raise UserError(f"no run folder {folder}: give the --logdir of a run")
    if not (folder / NAME).is_file():
        raise UserError(f"{folder} holds no run ({NAME} is missing): give the --logdir of a run")
    try:
        return replaced(Config(), dotted(read_yaml(folder / NAME)))
    except UserError as error:
        raise UserError(f"{folder / NAME} is damaged or of another version: {error}") from error


def load_to_resume(folder: Path) -> Config:
    """The configuration to go on with the run in a folder: it evaluates itself unless someone is there to do it."""
    return replaced(load(folder), {"logdir": str(folder), "run.eval_apart": False})


def differences(old: Config, new: Config) -> list[str]:
    """Options that differ and must not when a run is resumed, each as `name: old -> new`."""
    before, after = flattened(old), flattened(new)
    return [
        f"{name}: {before[name]} -> {after[name]}"
        for name in before
        if before[name] != after[name] and not name.startswith(CHANGEABLE)
    ]


def with_logdir(config: Config) -> Config:
    """The configuration with a new folder of its own where none was given."""
    if config.logdir:
        return config
    task = config.task.replace("/", "-").replace(":", "-")
    name = f"logdir/{task}-{config.agent.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
    return replace(config, logdir=next(each for each in names if not Path(each).exists()))
