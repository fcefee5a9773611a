"""What a sweep varies: options with a range or a list of values each, checked before anything starts."""

from __future__ import annotations

import itertools
import math
import types
import typing
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import names
from .errors import UserError, nearest
from .options import convert, known, options, replaced, within
from .presets import read_yaml
from .schema import Config

KEYS = ("low", "high", "log", "step", "int", "choices")
FIXED = {
    "logdir": "each trial has its own",
    "device": "--gpus shares them out",
    "run.eval_every": "trials are compared by it",
}
"""Options that a sweep cannot vary, and why."""

Value = bool | int | float | str | None


@dataclass(frozen=True)
class Dimension:
    """One option of a sweep: all numbers from low to high, or some values."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    """Whether small numbers are tried as often as large ones."""
    step: float | None = None
    """Distance between two numbers that are tried."""
    whole: bool = False
    """Whether numbers are whole."""
    choices: tuple[Value, ...] = ()

    def values(self) -> list[Value]:
        """All values, where they can be counted."""
        if self.choices:
            return list(self.choices)
        step = self.step or (1 if self.whole and not self.log else None)
        if step is None:
            return []
        numbers = [self.low + i * step for i in range(math.floor((self.high - self.low) / step + 1e-9) + 1)]
        return [int(number) for number in numbers] if self.whole else list(numbers)


Space = dict[str, Dimension]


def from_file(path: Path, config: Config) -> Space:
    """The space that a YAML file tells, each option checked against the configuration."""
    if not path.is_file():
        raise UserError(f"no file {path}: give a YAML file with the options to vary")
    try:
        return from_values(read_yaml(path), config)
    except UserError as error:
        raise UserError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def from_values(values: dict[str, Any], config: Config) -> Space:
    """The space of options by dotted, nested or short name."""
    given = _leaves(values)
    if not given:
        raise UserError("the space is empty: name options with low and high, or with a list of values")
    known_names = set(options()) | set(names.SHORT) | set(names.meanings())
    for name in given:
        if name not in known_names:
            known(name, also=(*names.SHORT, *names.meanings()))
    meant = names.spelled_out({names.SHORT.get(name, name): value for name, value in given.items()}, config.agent.name)
    if len(meant) < len(given):
        raise UserError(f"one option has two names here: {', '.join(given)}")
    return {name: _dimension(name, value) for name, value in meant.items()}


def from_words(words: Sequence[str], config: Config) -> Space:
    """The space of `NAME=VALUE,VALUE` words, or of files."""
    space: Space = {}
    for word in words:
        if word.endswith((".yaml", ".yml")) and "=" not in word:
            found = from_file(Path(word), config)
        else:
            name, equals, text = word.removeprefix("--").partition("=")
            if not equals or not text:
                raise UserError(f"--grid {word}: write NAME=VALUE,VALUE, or the name of a YAML file")
            found = from_values({name: [None if each == "none" else each for each in text.split(",")]}, config)
        if twice := space.keys() & found.keys():
            raise UserError(f"--grid names {', '.join(twice)} twice")
        space |= found
    return space


def combinations(space: Space) -> list[dict[str, Value]]:
    """Every point of a grid, the last option changing fastest."""
    for name, dimension in space.items():
        if not dimension.values():
            raise UserError(f"a grid needs values that can be counted, but {name} is a range: list them, or add a step")
    return [dict(zip(space, point)) for point in itertools.product(*(each.values() for each in space.values()))]


def neighbours(space: Space, config: Config) -> list[Config]:
    """Configurations with one option of the space at one of its values, or at either end of its range."""
    values = {name: each.choices or (each.low, each.high) for name, each in space.items()}
    return [replaced(config, {name: value}) for name, each in values.items() for value in each]


def plain(space: Space) -> dict[str, Any]:
    """The space as plain values, which `restored` takes back."""
    return {name: {**asdict(each), "choices": list(each.choices)} for name, each in space.items()}


def restored(values: dict[str, Any]) -> Space:
    """The space that `plain` gave."""
    return {name: Dimension(**{**each, "choices": tuple(each["choices"])}) for name, each in values.items()}


def _leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dimensions as they were given, by name; groups of options may be nested."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value and not set(value) & set(KEYS):
            found |= _leaves(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _dimension(name: str, value: Any) -> Dimension:
    kind = _plain_kind(known(name).kind)
    if name in FIXED:
        raise UserError(f"a sweep cannot vary {name}: {FIXED[name]}")
    if isinstance(value, dict):
        for key in value:
            if key not in KEYS:
                raise UserError(f"{name}: unknown word {key!r}: {nearest(str(key), KEYS)}")
        if "choices" not in value:
            return _range(name, value, kind)
        if len(value) > 1:
            raise UserError(f"{name} has choices and a range: leave one out")
        value = value["choices"]
    if not isinstance(value, list) or not value or typing.get_origin(kind) is tuple:
        raise UserError(f"{name} needs low and high, or a list of values")
    choices = tuple(checked(name, each) for each in value)
    if len(set(map(repr, choices))) < len(choices):
        raise UserError(f"{name} lists a value twice")
    return Dimension(choices=choices)


def _range(name: str, value: dict[str, Any], kind: Any) -> Dimension:
    if kind not in (int, float):
        raise UserError(f"{name} is no number: give a list of values instead of a range")
    if "low" not in value or "high" not in value:
        raise UserError(f"{name} needs low and high, or a list of values")
    low, high = (checked(name, value[key]) for key in ("low", "high"))
    log, whole = (convert(f"{name}: {key}", value.get(key, False), bool) for key in ("log", "int"))
    whole = whole or kind is int
    step = None if value.get("step") is None else convert(f"{name}: step", value["step"], int if whole else float)
    if low is None or high is None or low >= high:
        raise UserError(f"{name}: low ({low}) must be less than high ({high})")
    if log and low <= 0:
        raise UserError(f"{name}: low must be above 0 for log, not {low:g}")
    if step is not None and (step <= 0 or log):
        raise UserError(f"{name}: step must be above 0, and there is none with log")
    if whole and (low != int(low) or high != int(high)):
        raise UserError(f"{name}: low and high must be whole numbers")
    return Dimension(low, high, log, step, whole)


def checked(name: str, value: Any) -> Any:
    """A value of an option as its type, within what it may be."""
    return within(name, convert(name, value, known(name).kind))


def _plain_kind(kind: Any) -> Any:
    """The type of an option, without None."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return next(each for each in typing.get_args(kind) if each is not type(None))
    return kind
