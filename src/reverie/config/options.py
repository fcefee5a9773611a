"""Options by dotted name: what there is, of which type, and how a value given by a person becomes a typed one.

The command line, preset files and saved configurations all pass through here, so each is checked the same way.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from .errors import UserError, nearest
from .schema import Config

BOUNDS: dict[str, tuple[float, float | None]] = {
    **{f"ppo.{name}": (1, None) for name in ("rollout", "epochs", "minibatch", "features", "units", "layers")},
    "ppo.policy_layers": (0, None),
    **{f"ppo.{name}": (0, None) for name in ("lr", "adam_eps", "clip", "value_clip", "grad_norm", "target_kl")},
    **{f"ppo.{name}": (0, 1) for name in ("gamma", "lam")},
    **{f"world.{name}": (1, None) for name in ("deter", "hidden", "groups", "units", "depth", "blocks")},
    **{f"world.{name}": (0, None) for name in ("prior_layers", "layers", "reward_layers", "cont_layers", "min_std")},
    **{f"world.{name}_scale": (0, None) for name in ("recon", "reward", "cont", "dyn", "rep", "previous", "overshoot")},
    "world.classes": (2, None),
    "world.posterior_layers": (1, None),
    "world.bins": (3, None),
    **dict.fromkeys(("world.free_nats", "world.barlow_offdiagonal", "world.overshoot"), (0, None)),
    **{f"{part}.unimix": (0, 1) for part in ("world", "behavior")},
    **{
        f"behavior.{name}": (0, 1) for name in ("gamma", "lam", "mix", "mix_end", "epsilon", "slow_rate", "return_rate")
    },
    **{f"behavior.{name}": (1, None) for name in ("horizon", "units", "slow_every")},
    **{f"behavior.{name}": (0, None) for name in ("starts", "actor_layers", "critic_layers", "actor_scale", "noise")},
    **{f"behavior.{name}": (0, None) for name in ("slow_scale", "replay_scale", "min_std", "max_std", "init_std")},
    **{f"behavior.{name}": (0, 100) for name in ("return_low", "return_high")},
    **{f"explore.{name}": (0, None) for name in ("intrinsic", "extrinsic", "until", "units", "layers", "fit")},
    "explore.members": (2, None),
    **{
        f"optim.{part}.{name}": (0, None)
        for part in ("model", "actor", "critic")
        for name in ("lr", "eps", "clip", "agc", "warmup")
    },
    **{f"optim.{part}.decay": (0, 1) for part in ("model", "actor", "critic")},
    **{f"replay.{name}": (1, None) for name in ("capacity", "batch", "recency")},
    **{f"replay.{name}": (0, None) for name in ("ratio", "prefill", "warmup", "pretrain", "train_every", "alpha")},
    **{f"replay.{name}": (0, 1) for name in ("uniform", "online", "recent", "prioritised", "ends")},
    "replay.length": (2, None),
    "optim.lr_end": (0, 1),
    **{f"run.{name}": (1, None) for name in ("steps", "eval_episodes", "eval_envs")},
    **{f"run.{name}": (0, None) for name in ("eval_every", "save_every", "eval_videos", "threads")},
    **{f"env.{name}": (1, None) for name in ("repeat", "size", "stack")},
    **{f"env.{name}": (0, 1) for name in ("atari.sticky", "minatar.sticky")},
    **{f"env.{name}": (0, None) for name in ("time_limit", "reward_clip", "atari.noops", "mario.noops")},
    **{f"collect.{name}": (1, None) for name in ("rows", "ahead")},
    **dict.fromkeys(("collect.generators", "store.keep"), (0, None)),
    **{f"store.{name}": (1, None) for name in ("newest", "every")},
    **{f"envs.{name}": (1, None) for name in ("count", "max_restarts")},
    **dict.fromkeys(("seed", "envs.workers", "envs.timeout", "log.every"), (0, None)),
    **dict.fromkeys(("episodes", "gif_fps", "context", "repeats", "trials"), (1, None)),
    "jobs": (0, None),
    "seconds": (0.01, None),
    "smooth": (0, 1),
    "env.godot.timeout": (0.1, None),
    "length": (2, None),
    "start": (0, None),
    "port": (0, 65535),
}
"""Least and greatest values of options, by dotted name; None is no limit."""


@dataclass(frozen=True)
class Option:
    """One option: its dotted name, type, default and the line of help under it in the schema."""

    name: str
    kind: Any
    default: Any
    help: str

    @property
    def group(self) -> str:
        """The name of the component the option belongs to; empty for the options of the run itself."""
        return self.name.rpartition(".")[0]

    @property
    def is_flag(self) -> bool:
        """Whether the option may stand without a value."""
        return bool in (self.kind, *typing.get_args(self.kind))


@cache
def options(kind: type = Config) -> dict[str, Option]:
    """All options of a dataclass by dotted name, in the order of their definition."""
    found: dict[str, Option] = {}
    _gather(kind, "", found)
    return found


def _gather(kind: type, prefix: str, found: dict[str, Option]) -> None:
    hints = typing.get_type_hints(kind)
    helps = field_docs(kind)
    for item in dataclasses.fields(kind):
        name = prefix + item.name
        if dataclasses.is_dataclass(hints[item.name]):
            _gather(hints[item.name], name + ".", found)
        else:
            found[name] = Option(name, hints[item.name], item.default, helps.get(item.name, ""))


def field_docs(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass as one line, by field name."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for item, following in zip(body.body, body.body[1:]):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and isinstance(following, ast.Expr):
            docs[item.target.id] = " ".join(str(ast.literal_eval(following.value)).split())
    return docs


def known(name: str, among: dict[str, Option] | None = None, also: Iterable[str] = ()) -> Option:
    """The option of that name; an unknown name is an error that says the nearest right ones, of `also` too."""
    among = among or options()
    if name not in among:
        same_word = [f"--{each}" for each in among if each.rpartition(".")[2] == name.rpartition(".")[2]]
        words = [f"--{each}" for each in (*among, *also)]
        hint = f"did you mean {' or '.join(same_word)}?" if same_word else nearest(f"--{name}", words)
        raise UserError(f"unknown option --{name}: {hint}")
    return among[name]


def replaced(config: Config, values: dict[str, Any]) -> Config:
    """A copy of the configuration with options set by dotted name, each checked."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        option = known(name)
        *path, last = name.split(".")
        place = nested
        for word in path:
            place = place.setdefault(word, {})
        place[last] = within(name, convert(name, value, option.kind))
    return _replace(config, nested)


def _replace(config: Any, nested: dict[str, Any]) -> Any:
    changes = {
        name: _replace(getattr(config, name), value) if isinstance(value, dict) else value
        for name, value in nested.items()
    }
    return dataclasses.replace(config, **changes)


def flattened(config: Config) -> dict[str, Any]:
    """Every option's value by dotted name."""
    values: dict[str, Any] = {}
    for name in options():
        value: Any = config
        for word in name.split("."):
            value = getattr(value, word)
        values[name] = value
    return values


def convert(name: str, value: Any, kind: Any) -> Any:
    """The value as the option's type; a value that is not of it is an error naming the option."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        return convert(name, value, next(each for each in inner if each is not type(None)))
    if origin is Literal:
        if value not in inner:
            raise UserError(f"--{name} is one of {', '.join(map(str, inner))}, not {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, (str, list, tuple)):
            raise UserError(f"--{name} takes a list, not {value!r}")
        words = value.replace(",", " ").split() if isinstance(value, str) else list(value)
        return tuple(convert(name, word, inner[0]) for word in words)
    return _scalar(name, value, kind)


def within(name: str, value: Any) -> Any:
    """The value, refused where it lies outside what the option can be."""
    low, high = BOUNDS.get(name, (None, None))
    if value is None or low is None or not isinstance(value, (int, float)):
        return value
    if value < low or (high is not None and value > high):
        limit = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
        raise UserError(f"--{name} is {value:g}: it must be {limit}")
    return value


def _scalar(name: str, value: Any, kind: type) -> Any:
    if kind is str and isinstance(value, str):
        return value
    if kind is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "yes", "on", "1"):
            return True
        if isinstance(value, str) and value.lower() in ("false", "no", "off", "0"):
            return False
    elif kind in (int, float) and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        number = _number(value)
        if number is not None and (kind is float or number == int(number)):
            return kind(number)
    expected = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}[kind]
    raise UserError(f"--{name} takes {expected}, not {value!r}")


def _number(value: int | float | str) -> int | float | None:
    try:
        return int(value) if isinstance(value, (int, str)) else value
    except ValueError:
        pass
    try:
        number = float(value)
    except ValueError:
        return None
    return number if number - number == 0 else None
