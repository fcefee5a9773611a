"""How a person acts: each number of an action is a choice or a range, with keys of the keyboard for it."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ..config.errors import UserError
from ..envs.joint import parts_of

KEYS = {
    "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight", "forward": "ArrowUp",
    "fire": " ", "do": " ", "toggle": " ", "a": "x", "b": "z",
}  # fmt: skip
"""Words in the names of actions -> keys, as browsers call them."""
RESTS = ("noop", "nothing", "none", "stay")
SPARE = "1234567890qertyfghcvbn"
"""Keys of actions whose names say nothing."""
PAIRS = (("ArrowLeft", "ArrowRight"), ("ArrowDown", "ArrowUp"), ("a", "d"), ("s", "w"), ("j", "l"), ("k", "i"))
"""Keys of less and more for one number after another."""


@dataclass(frozen=True)
class Control:
    """One number of an action."""

    names: tuple[str, ...] = ()
    """What each of its classes means; empty for a continuous number."""
    keys: tuple[tuple[str, ...], ...] = ()
    """Keys that are held for each class, none for the one without; of a continuous number those of less and more."""
    low: float = -1.0
    high: float = 1.0


def action_names(env: gymnasium.Env) -> list[str]:
    """What an environment calls its discrete actions; empty where it does not say."""
    own: Any = env.unwrapped
    if hasattr(own, "get_action_meanings"):
        return [str(name) for name in own.get_action_meanings()]
    named: Any = getattr(own, "actions", None)
    return [str(name) for name in named.__members__] if isinstance(named, enum.EnumMeta) else []


def controls_of(space: spaces.Space, names: Sequence[str]) -> list[Control]:
    """The controls of an action of the standard form, one after another."""
    if isinstance(space, spaces.Discrete):
        return [choice(int(space.n), names)]
    found: list[Control] = []
    for part in parts_of(space):
        if isinstance(part, spaces.Box):
            for low, high in zip(part.low.tolist(), part.high.tolist()):
                ends = (low, high) if math.isfinite(low) and math.isfinite(high) else (-1.0, 1.0)
                found.append(Control((), tuple((key,) for key in pair(len(found))), *ends))
        else:
            counts = [int(part.n)] if isinstance(part, spaces.Discrete) else part.nvec.tolist()  # type: ignore[attr-defined]
            for count in counts:
                found.append(one_of_many(count, len(found)))
    return found


def pair(place: int) -> tuple[str, ...]:
    """The keys of less and more of the number at a place; none where they are used up."""
    return PAIRS[place] if place < len(PAIRS) else ()


def one_of_many(count: int, place: int) -> Control:
    """A choice among others: the two keys of its place are for its last class, and for its first if it has three."""
    keys: list[tuple[str, ...]] = [()] * count
    if keys_here := pair(place):
        keys[-1] = keys_here[1:]
        if count == 3:
            keys = [keys_here[:1], (), keys_here[1:]]
    return Control(tuple(map(str, range(count))), tuple(keys))


def choice(count: int, names: Sequence[str]) -> Control:
    """The only choice there is: keys by the names of the classes, where they say something."""
    if len(names) != count:
        usual = {2: ("left", "right"), 3: ("left", "noop", "right")}
        keys = keys_of(usual.get(count, [""] * count))
        return Control(tuple(map(str, range(count))), keys)
    return Control(tuple(names), keys_of(names))


def keys_of(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The keys that are held for each of the named actions; those whose names say nothing get spare ones."""
    spare, found = iter(SPARE), []
    for name in names:
        keys = held(name)
        if keys is None or (keys and keys in found):
            keys = tuple(key for key in [next(spare, "")] if key)
        found.append(keys)
    return tuple(found)


def held(name: str) -> tuple[str, ...] | None:
    """The keys that an action's name speaks of: none for doing nothing, None if it speaks of no keys."""
    word = name.lower()
    if word in RESTS:
        return ()
    parts = (
        re.findall("up|down|left|right|fire|noop", word)
        if name.isupper() and len(name) > 1
        else re.split(r"[\s_]+", word)
    )
    parts = [part for part in parts if part != "move"]
    return tuple(KEYS[part] for part in parts) if parts and all(part in KEYS for part in parts) else None


def fits(value: Any, control: Control) -> bool:
    """Whether a control can have this value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if control.names:
        return value in range(len(control.names))
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can be
        return False


def action_of(values: Any, controls: Sequence[Control], space: spaces.Space) -> np.ndarray:
    """The action of the standard form that the values of all controls make, as environments take it."""
    if not isinstance(values, list) or len(values) != len(controls):
        raise UserError(f"an action is a list of {len(controls)} numbers")
    for value, control in zip(values, controls):
        if not fits(value, control):
            raise UserError(f"{value!r} is no value of an action")
    array = np.array(values, space.dtype)
    if isinstance(space, spaces.Box):
        return np.clip(array, space.low, space.high)
    return array[0] if isinstance(space, spaces.Discrete) else array
