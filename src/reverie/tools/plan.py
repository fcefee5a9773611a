"""A sweep as it lies in its folder: what it varies, what all trials share, where its study is."""

from __future__ import annotations

import importlib.util
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from ..config import owners, store
from ..config import space as spaces
from ..config.errors import UserError, extra
from ..config.options import replaced
from ..config.presets import read_yaml, stacked
from ..config.schema import Config
from ..config.space import Space
from ..config.sweeps import CHOSEN, SweepArguments
from ..config.whole import write_whole
from ..log.disk import writing

BASE = "base.yaml"
NAME = "sweep.yaml"


@dataclass(frozen=True)
class Plan:
    """All that a worker needs to know of a sweep."""

    folder: Path
    base: Config
    space: Space
    arguments: SweepArguments

    @property
    def is_grid(self) -> bool:
        """Whether every combination is tried."""
        return bool(self.arguments.grid)

    @property
    def storage(self) -> str:
        """The address of the study."""
        return self.arguments.storage or f"sqlite:///{(self.folder / 'study.db').absolute()}"

    @property
    def study(self) -> str:
        """The name of the study."""
        return self.arguments.study or self.folder.absolute().name

    @property
    def evaluations(self) -> int:
        """How often a trial is evaluated at most."""
        every = self.base.run.eval_every
        return -(-self.base.run.steps // every) if every else 1

    def picture(self, name: str) -> Path:
        """The file of a picture."""
        return self.folder / f"{name}.{self.arguments.pictures}"

    def identity(self) -> str:
        """What workers on one study must agree in, as text."""
        asked = {name: getattr(self.arguments, name) for name in ("metric", "score", "minimize")}
        fixed = replaced(self.base, {"device": "auto"})
        return json.dumps([spaces.plain(self.space), asked, asdict(fixed)], sort_keys=True)


def new(arguments: SweepArguments, config: Config) -> Plan:
    """The plan of a new sweep, checked; nothing is written."""
    if bool(arguments.space) == bool(arguments.grid):
        raise UserError("sweep needs what to vary: --space FILE to search, or --grid NAME=VALUE,VALUE ... for a grid")
    words = arguments.grid or (arguments.space,)
    space = spaces.from_words(words, config) if arguments.grid else spaces.from_file(Path(words[0]), config)
    if arguments.grid:
        arguments = replace(arguments, trials=len(spaces.combinations(space)))
    if arguments.metric.startswith("eval/") and not (config.run.eval_every or config.run.eval_at_end):
        raise UserError(f"trials would have no {arguments.metric}: set --run.eval_every, or another --metric")
    folder = Path(config.logdir or f"logdir/{config.task.replace(':', '_')}-sweep-{time.strftime('%Y%m%d-%H%M%S')}")
    if (folder / NAME).exists():
        raise UserError(f"{folder} already holds a sweep: add --resume to go on with it, or use another --logdir")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} holds other files: use an empty or new folder as --logdir")
    named = [name for name in space if not ("task" in space and name.startswith("env."))]  # tasks differ by trial
    owners.warn_of_idle(named, config, spaces.neighbours(space, config))
    check_installed()
    return Plan(folder, replaced(config, {"logdir": ""}), space, arguments)


def save(plan: Plan) -> None:
    """Write a new sweep into its folder; an address with a password in it stays out."""
    told = asdict(plan.arguments) | {"space": spaces.plain(plan.space), "configs": [], "resume": False}
    told |= {name: list(told[name]) for name in ("grid", "gpus")}
    if urlsplit(plan.arguments.storage).password:
        told["storage"] = ""
        told["needs_storage"] = True
    made(plan.folder)
    with writing(plan.folder / NAME):
        store.save(plan.base, plan.folder, BASE)
        (plan.folder / NAME).write_text(yaml.safe_dump(told, sort_keys=False))


def keep_trials(plan: Plan) -> None:
    """Write down that a resumed sweep has more trials than before."""
    told = read_yaml(plan.folder / NAME)
    if plan.arguments.trials > told["trials"]:
        text = yaml.safe_dump(told | {"trials": plan.arguments.trials}, sort_keys=False)
        with writing(plan.folder / NAME):
            write_whole(plan.folder / NAME, lambda file: file.write(text.encode()))


def made(folder: Path) -> None:
    """Make the folder of a sweep."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def resumed(given: dict[str, Any], values: dict[str, Any]) -> Plan:
    """The plan of the sweep in the folder that the values name, with what was given anew."""
    if fixed := [f"--{name}" for name in (*given, *values) if name not in (*CHOSEN, "logdir")]:
        raise UserError(f"a resumed sweep keeps its options: leave out {', '.join(fixed)}, or start another sweep")
    logdir = values.get("logdir", "")
    folder = Path(logdir)
    if not logdir or not (folder / NAME).is_file():
        raise UserError(f"--resume needs the --logdir of a sweep: {logdir or 'none is given'} holds none")
    told = read_yaml(folder / NAME)
    if told.pop("needs_storage", False) and "storage" not in given:
        raise UserError("the storage of this sweep has a password, which is not kept: give --storage again")
    try:
        space = spaces.restored(told.pop("space"))
        arguments = SweepArguments(**told | {name: tuple(told[name]) for name in ("configs", "grid", "gpus")})
    except (TypeError, KeyError) as error:
        raise UserError(f"{folder / NAME} is damaged or of another version: {error}") from error
    if arguments.grid:
        given = {name: value for name, value in given.items() if name != "trials"}
    base = stacked([str(folder / BASE)])
    check_installed()
    return Plan(folder, base, space, replace(arguments, **given))


def check_installed() -> None:
    """Refuse to go on without the packages of sweeps."""
    if missing := [name for name in ("optuna", "matplotlib") if importlib.util.find_spec(name) is None]:
        raise UserError(f"no {' and '.join(missing)} here: {extra('sweep')}")
