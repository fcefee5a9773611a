"""The help of the command line, laid out from the schema, the presets and the registry."""

from __future__ import annotations

import dataclasses
import textwrap
import typing
from typing import Any

from ..config.arguments import (
    SUBJECTS,
    BenchArguments,
    DreamArguments,
    EnvsArguments,
    EvalArguments,
    ExportArguments,
    PlayArguments,
    PlotArguments,
    TrainArguments,
)
from ..config.names import ON_POLICY, SHORT, SWITCH, meanings
from ..config.options import Option, options
from ..config.presets import PRESETS
from ..config.schema import Config
from ..config.sweeps import SweepArguments
from ..envs.registry import SUITES, suite

WIDTH = 116
RATES = (
    "--learning_rate of a Dreamer is that of everything where one optimiser does it all (dreamer_v3 and what is built "
    "on it), and that of the world model alone where there are three (dreamer_v1, dreamer_v2, dreamer_v3_2023)."
)
LENT = ["", "All options of `reverie train` apply too, as they do there: `reverie train --help` lists them."]
USAGE = {
    "train": "reverie train [--configs NAME ...] [--task SUITE_NAME] [--logdir DIR] [--resume] [--option VALUE ...]",
    "launch": "reverie launch [--generators N] [--resume] and all that reverie train takes",
    "eval": "reverie eval --logdir DIR [--episodes N] [--checkpoint best|latest|FILE] [--json] [--follow]",
    "play": "reverie play --logdir DIR [--episodes N] [--checkpoint FILE] [--stochastic] [--save-gif] [--overlay]",
    "dream": "reverie dream --logdir DIR [--episodes N] [--checkpoint best|latest|FILE] [--length N] [--web]",
    "export": "reverie export --logdir DIR --out FILE.onnx|FILE.pt2 [--checkpoint best|latest|FILE] [--stochastic]",
    "plot": "reverie plot LOGDIR ... [--metric NAME] [--x steps|frames|time|updates] [--published FILE] [--out FILE]",
    "sweep": "reverie sweep --space FILE [--trials N] | --grid NAME=VALUE,VALUE ... [--configs NAME ...] [--option X]",
    "envs": "reverie envs [--check TASK] [--configs NAME ...] [--env.OPTION VALUE ...] [--envs.OPTION VALUE ...]",
    "bench": "reverie bench SUBJECT [--configs NAME ...] [--repeats N] [--seconds X] [--parts] [--json] [--option ...]",
}
ARGUMENTS: dict[str, type] = {
    "eval": EvalArguments,
    "play": PlayArguments,
    "dream": DreamArguments,
    "export": ExportArguments,
    "plot": PlotArguments,
    "sweep": SweepArguments,
    "envs": EnvsArguments,
    "bench": BenchArguments,
}


def overview(commands: dict[str, str]) -> str:
    """The commands with a line each."""
    lines = ["Reverie: reinforcement learning with and without a world model", "", "Commands"]
    lines += [f"  reverie {name:7} {about}" for name, about in commands.items()]
    return "\n".join([*lines, "", "reverie COMMAND --help says more. `reverie train` alone runs the default."])


def command_help(name: str, about: str) -> str:
    """Usage and options of one command."""
    lines = [f"{USAGE[name]}", "", f"{about[0].upper()}{about[1:]}.", ""]
    if name == "launch":
        return "\n".join(
            [*lines, "All options of `reverie train` apply, as they do there: `reverie train --help` lists them."]
        )
    if name != "train":
        own = _rows(list(options(ARGUMENTS[name]).values()))
        if name == "bench":
            own = [*_subjects(), "Options", *own]
        return "\n".join([*lines, *own, *(LENT if name in ("bench", "sweep") else [])])
    lines += ["Presets (--configs stacks them left to right; a YAML file of your own stacks the same way)"]
    lines += [f"  {key:16} {preset.about}" for key, preset in PRESETS.items()]
    lines += ["", "Suites (--task SUITE_NAME, or module:Class; `reverie envs` says what is installed)"]
    lines += [f"  {each:16} {suite(each).about}" for each in SUITES]
    for title, group in _groups().items():
        lines += ["", title, *_rows(group)]
    return "\n".join([*lines, "", *_short_names()])


def _subjects() -> list[str]:
    """What `bench` measures."""
    return ["Subjects", *(f"  {name:16} {about}" for name, about in SUBJECTS.items()), ""]


def _short_names() -> list[str]:
    """What other projects' spellings mean here, for each agent."""
    always = ", ".join(f"--{short} = --{long}" for short, long in SHORT.items())
    lines = ["Short names", *textwrap.wrap(always, WIDTH, initial_indent="  ", subsequent_indent="  ")]
    lines += ["", f"{'Short names that the agent decides':36}{'of ppo':26}of dreamer"]
    for short, found in meanings().items():
        of = {agent: f"--{name}" for agent, name in found.items()}
        lines.append(f"  {'--' + short:34}{of.get('ppo', '-'):26}{of.get('dreamer', '-')}")
    switch = f"--{ON_POLICY} True is --agent.policy {SWITCH['true']}, False --agent.policy {SWITCH['false']}."
    return [*lines, "", *textwrap.wrap(RATES, WIDTH), switch]


def _groups() -> dict[str, list[Option]]:
    """Options by the component they belong to, under the first line of its docstring."""
    titles = {"": "The run"} | _titles(Config, "")
    groups: dict[str, list[Option]] = {"The run": list(options(TrainArguments).values())}
    for option in options().values():
        groups.setdefault(titles[option.group], []).append(option)
    return groups


def _titles(kind: type, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, hint in typing.get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            found[prefix + name] = (hint.__doc__ or name).splitlines()[0].rstrip(".")
            found |= _titles(typing.cast(type, hint), f"{prefix}{name}.")
    return found


def _rows(group: list[Option]) -> list[str]:
    lines: list[str] = []
    for option in group:
        left = f"  --{option.name} {_kind(option)}"
        text = f"{option.help}{_default(option.default)}"
        wrapped = textwrap.wrap(text, WIDTH - 46)
        if len(left) > 45:
            lines.append(left)
            left = ""
        lines += [f"{left if i == 0 else '':46}{part}" for i, part in enumerate(wrapped)]
    return lines


def _kind(option: Option) -> str:
    arguments = typing.get_args(option.kind)
    if typing.get_origin(option.kind) is typing.Literal:
        return "|".join(map(str, arguments))
    if typing.get_origin(option.kind) is tuple:
        return "NAME ..."
    plain: Any = next((each for each in arguments if each is not type(None)), option.kind)
    return {int: "N", float: "X", str: "TEXT", bool: "" if option.default is False else "True|False"}[plain]


def _default(value: Any) -> str:
    if value is True:
        return " [True]"
    if value is False or value in ("", (), None):
        return ""
    return f" [{value:,}]" if isinstance(value, int) else f" [{value}]"
