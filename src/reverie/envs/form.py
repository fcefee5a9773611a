"""The standard form: every observation a flat dict of arrays, every action an integer or a row of numbers.

The same code serves one environment (`lead` is empty) and a vector of them (`lead` is (N,)).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ..config.errors import UserError
from ..data.rows import RESERVED
from .joint import Joint

Observation = dict[str, np.ndarray]


@dataclass(frozen=True)
class Leaf:
    """One array of the standard form: the way to it in the environment's own observation, and what it becomes."""

    key: str
    path: tuple[Any, ...]
    raw: gymnasium.Space
    space: gymnasium.Space
    dtype: Any
    start: Any
    """The smallest class where classes do not start at 0, else None."""
    reshaped: bool

    def find(self, observation: Any) -> Any:
        """The environment's own value; KeyError, IndexError or TypeError where it is not there."""
        for word in self.path:
            observation = observation[word]
        return observation

    def array(self, value: Any, lead: tuple[int, ...] = ()) -> np.ndarray:
        """A fresh array of the standard form's shape and dtype."""
        if self.start is not None:
            value = np.asarray(value) - self.start
        array = np.array(value, self.dtype)
        return array.reshape(lead + (self.space.shape or ())) if self.reshaped else array


class ObservationForm:
    """Turns the observations of a space into flat dicts of arrays; `space` is what they belong to afterwards."""

    def __init__(self, space: gymnasium.Space) -> None:
        self.raw = space
        self.leaves = tuple(find_leaves(space))
        self.space = spaces.Dict({leaf.key: leaf.space for leaf in self.leaves})

    def __call__(self, observation: Any, lead: tuple[int, ...] = ()) -> Observation:
        """The observation as a dict of fresh arrays."""
        return {leaf.key: leaf.array(leaf.find(observation), lead) for leaf in self.leaves}


def find_leaves(space: gymnasium.Space) -> list[Leaf]:
    """The leaves of an observation space, their keys checked."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [make_leaf("image" if is_image(leaf_space(space, "vector")) else "vector", (), space)]
    leaves = [make_leaf(joined(path), path, raw) for path, raw in walk(space)]
    if not leaves:
        raise UserError("the observation space has no entries: give it at least one")
    keys = [leaf.key for leaf in leaves]
    for key in keys:
        if key in RESERVED:
            raise UserError(f"observation {key!r} has a name that rows use themselves: rename it")
        if keys.count(key) > 1:
            raise UserError(f"two observations are called {key!r} once nested names are joined: rename one")
    return leaves


def make_leaf(key: str, path: tuple[Any, ...], raw: gymnasium.Space) -> Leaf:
    """A leaf with what its conversion needs worked out beforehand."""
    space = leaf_space(raw, key)
    start = raw.start if isinstance(raw, spaces.Discrete | spaces.MultiDiscrete) and np.any(raw.start) else None
    return Leaf(key, path, raw, space, np.dtype(space.dtype), start, raw.shape != space.shape)


def walk(space: gymnasium.Space, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], gymnasium.Space]]:
    """Every path through nested Dict and Tuple spaces, with the space at its end."""
    if isinstance(space, spaces.Dict):
        children: list[tuple[Any, gymnasium.Space]] = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        children = list(enumerate(space.spaces))
    else:
        return [(path, space)]
    return [found for word, child in children for found in walk(child, (*path, word))]


def joined(path: tuple[Any, ...]) -> str:
    """The name of what stands at the end of a path."""
    return "/".join(str(word) for word in path)


def leaf_space(space: gymnasium.Space, key: str) -> gymnasium.Space:
    """What a single space is in the standard form."""
    if isinstance(space, spaces.Box):
        return box_form(space)
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary(space.shape)
    raise UserError(
        f"observation {key!r} is a {type(space).__name__} space, which is not supported: "
        "use Box, Discrete, MultiDiscrete or MultiBinary, in a Dict or Tuple if there are several"
    )


def box_form(space: spaces.Box) -> spaces.Box:
    """A Box as float32 unless it holds integers, at least one-dimensional, gray images with a channel axis."""
    dtype = np.dtype(space.dtype)
    shape = space.shape or (1,)
    if dtype == np.uint8 and len(shape) == 2 and bool((space.low == 0).all() and (space.high == 255).all()):
        shape = (*shape, 1)
    target: Any = dtype if np.issubdtype(dtype, np.integer) else np.dtype(np.float32)
    with np.errstate(over="ignore"):  # bounds of float64 may lie beyond float32: infinity is the right answer
        low, high = space.low.astype(target), space.high.astype(target)
    return spaces.Box(low.reshape(shape), high.reshape(shape), shape, target)


def float_keys(space: spaces.Dict) -> tuple[str, ...]:
    """The entries of a space of the standard form that hold floats."""
    return tuple(key for key, leaf in space.spaces.items() if np.dtype(leaf.dtype).kind == "f")


def is_image(space: gymnasium.Space) -> bool:
    """Whether a space of the standard form holds images: uint8 (h, w, c)."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


class ActionForm:
    """Turns actions of the standard form into those of a space; `space` is what agents see."""

    def __init__(self, space: gymnasium.Space) -> None:
        self.raw = space
        self.space = action_space(space)
        self.single = isinstance(space, spaces.Discrete)
        self.start = np.asarray(getattr(space, "start", 0))[()]
        self.bounded = isinstance(space, spaces.Box) and space.dtype != np.float32
        self.parts = {joined(path): ActionForm(raw) for path, raw in walk(space) if path}

    def __call__(self, action: Any, lead: tuple[int, ...] = ()) -> Any:
        """The action as the environment wants it."""
        if self.single and not lead:
            return self.start + action  # a numpy integer, which Gymnasium's own check of actions passes fastest
        if self.parts:
            return self.nested(self.raw, (), np.asarray(action), lead)
        array = np.array(action, self.raw.dtype).reshape(lead + (self.raw.shape or ()))
        if isinstance(self.raw, spaces.Discrete | spaces.MultiDiscrete):
            array += self.start
        elif self.bounded and isinstance(self.raw, spaces.Box):
            array = np.clip(array, self.raw.low, self.raw.high)  # a bound in float32 may lie just outside
        return array

    def nested(self, space: gymnasium.Space, path: tuple[Any, ...], row: np.ndarray, lead: tuple[int, ...]) -> Any:
        """What a row of a joint action says for the space at the end of a path."""
        if isinstance(space, spaces.Dict):
            return {word: self.nested(child, (*path, word), row, lead) for word, child in space.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self.nested(child, (*path, i), row, lead) for i, child in enumerate(space.spaces))
        assert isinstance(self.space, Joint)
        form = self.parts[joined(path)]
        numbers = row[..., self.space.slices[joined(path)]]
        if not isinstance(space, spaces.Box):
            numbers = np.rint(numbers).astype(np.int64)
        return form(numbers[..., 0] if form.single else numbers, lead)


def action_space(space: gymnasium.Space) -> gymnasium.Space:
    """What an action space is in the standard form."""
    if isinstance(space, Joint):
        return space
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return joint_space(space)
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec.reshape(-1))
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiDiscrete([2] * int(np.prod(space.shape)))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        with np.errstate(over="ignore"):
            low, high = space.low.astype(np.float32).reshape(-1), space.high.astype(np.float32).reshape(-1)
        return spaces.Box(low, high, dtype=np.float32)
    kind = f"{type(space).__name__} of {space.dtype}" if isinstance(space, spaces.Box) else type(space).__name__
    raise UserError(
        f"the action space is a {kind}, which is not supported: "
        "use Discrete, MultiDiscrete or a float Box, in a Dict or Tuple if there are several"
    )


def joint_space(space: spaces.Dict | spaces.Tuple) -> Joint:
    """The flat form of nested actions, their names checked."""
    paths = walk(space)
    if not paths:
        raise UserError("the action space has no entries: give it at least one")
    keys = [joined(path) for path, _ in paths]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"two actions are called {key!r} once nested names are joined: rename one")
    return Joint({key: action_space(raw) for key, (_, raw) in zip(keys, paths)})


def missing_or_extra(space: gymnasium.Space, observation: Any, path: tuple[Any, ...] = ()) -> str:
    """A phrase naming the first entry an observation lacks or has beyond its space; empty if they agree."""
    where = "/".join(str(word) for word in path) or "observation"
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping):
            return f"{where!r} is a {type(observation).__name__}, not a dict"
        if odd := set(space.spaces).symmetric_difference(observation):
            word = min(odd, key=str)
            return f"{where!r} " + (f"lacks {word!r}" if word in space.spaces else f"has {word!r} beyond its space")
        children: list[tuple[Any, gymnasium.Space]] = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        if not isinstance(observation, tuple) or len(observation) != len(space.spaces):
            return f"{where!r} is not a tuple of {len(space.spaces)}"
        children = list(enumerate(space.spaces))
    else:
        return ""
    found = (missing_or_extra(child, observation[word], (*path, word)) for word, child in children)
    return next((phrase for phrase in found if phrase), "")
