"""Checks of what an environment shows and an agent sends, each fault told in one line: all of them at the first steps,
and at every step that numbers are finite.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ..config.errors import UserError
from .form import Leaf, ObservationForm, missing_or_extra

STEPS = 100
"""How many steps are checked: most faults show at once, and checking costs time."""

MEND = "mend the environment, or leave out the checks with --envs.checks False"


def raw_observation(form: ObservationForm, observation: Any, env: int, tell: bool = False) -> None:
    """Refuse an observation that is not what the environment's own space says; `tell` warns of harmless faults."""
    for fault in observation_faults(form, observation).values():
        raise UserError(f"environment {env}: {fault}: {MEND}")
    for leaf in form.leaves if tell else ():
        if not isinstance(leaf.raw, spaces.Discrete) and (dtype := leaf.find(observation).dtype) != leaf.raw.dtype:
            told = f"observation {leaf.key!r} is {dtype}, its space promises {leaf.raw.dtype}"
            logging.getLogger("reverie").warning(f"environment {env}: {told}: it is converted")


def observation_faults(form: ObservationForm, observation: Any) -> dict[str, str]:
    """Everything that is wrong with an observation, by what it is about."""
    if fault := missing_or_extra(form.raw, observation):
        return {"keys": fault}
    found = {}
    for leaf in form.leaves:
        value = leaf.find(observation)
        fault = type_fault(leaf, value) or range_fault(leaf, np.asarray(value))
        if fault:
            found[leaf.key] = f"observation {leaf.key!r} {fault}"
    return found


def type_fault(leaf: Leaf, value: Any) -> str:
    """A phrase for a value of another kind, dtype or shape than its space has; empty if it is right."""
    if isinstance(leaf.raw, spaces.Discrete):
        if not isinstance(value, int | np.integer) and not (isinstance(value, np.ndarray) and value.shape == ()):
            return f"is a {type(value).__name__}, its space promises an integer"
        return ""
    if not isinstance(value, np.ndarray | np.generic):
        return f"is a {type(value).__name__}, its space promises a numpy array"
    if value.shape != leaf.raw.shape:
        return f"has shape {value.shape}, its space promises {leaf.raw.shape}"
    promised = np.dtype(leaf.raw.dtype)
    same = value.dtype == promised or same_numbers(leaf.raw, value.dtype)
    return "" if same else f"is {value.dtype}, its space promises {promised}"


def same_numbers(space: gymnasium.Space, dtype: np.dtype) -> bool:
    """Whether values of another dtype than the space's can be converted without changing what they mean."""
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return dtype.kind in "biu"
    return dtype.kind == "f" and np.dtype(space.dtype).kind == "f"


def range_fault(leaf: Leaf, array: np.ndarray) -> str:
    """A phrase for numbers that are not finite or classes that do not exist; empty if there are none."""
    if isinstance(leaf.raw, spaces.Discrete | spaces.MultiDiscrete):
        classes = leaf.raw.n if isinstance(leaf.raw, spaces.Discrete) else leaf.raw.nvec
        outside = ((array < leaf.raw.start) | (array >= leaf.raw.start + classes)).any()
        return f"is {array.tolist()}, outside of {leaf.raw}" if outside else ""
    return not_finite(array)


def raw_reward(reward: Any, env: int) -> None:
    """Refuse a reward that is not one finite number."""
    if fault := reward_fault(reward):
        raise UserError(f"environment {env}: {fault}: {MEND}")


def reward_fault(reward: Any) -> str:
    """A phrase for a reward that is not one finite number; empty if it is one."""
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        return f"the reward is {reward!r}, not a number"
    fault = not_finite(array.reshape(()))
    return f"the reward {fault}" if fault else ""


def observations(space: spaces.Dict, rows: Mapping[str, np.ndarray], count: int) -> None:
    """Refuse observations of N environments that are not what their space says."""
    if odd := set(space.spaces).symmetric_difference(rows):
        raise UserError(f"observation {min(odd)!r} is not both in the space and in what was shown: {MEND}")
    for key, leaf in space.spaces.items():
        array = rows[key]
        if array.shape != (count, *(leaf.shape or ())) or array.dtype != leaf.dtype:
            shown, promised = (array.shape[1:], str(array.dtype)), (leaf.shape, str(leaf.dtype))
            raise UserError(f"environment 0: observation {key!r} is {shown}, its space promises {promised}: {MEND}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            env = int(np.argmin(np.isfinite(array).reshape(count, -1).all(1)))
            raise UserError(f"environment {env}: observation {key!r} {not_finite(array[env])}: {MEND}")


def rewards(values: np.ndarray) -> None:
    """Refuse rewards of N environments that are not finite."""
    for env in np.flatnonzero(~np.isfinite(values))[:1]:
        raise UserError(f"environment {env}: the reward {not_finite(values[env])}: {MEND}")


def spoiled(observation: Mapping[str, np.ndarray], floats: tuple[str, ...], reward: float) -> str:
    """A phrase for the first number of one environment that is not finite; empty if all are."""
    total = reward
    for key in floats:
        total += float(np.vdot(observation[key], observation[key]))
    if math.isfinite(total):  # all are; where it is not, a sum may also have overflowed
        return ""
    for key in floats:
        if fault := not_finite(observation[key]):
            return f"observation {key!r} {fault}"
    return "" if math.isfinite(reward) else f"the reward {not_finite(np.asarray(reward))}"


def unspoiled(rows: Mapping[str, np.ndarray], floats: tuple[str, ...], reward: np.ndarray) -> None:
    """Refuse numbers that are not finite from N environments of which none can be restarted alone."""
    if finite(reward) and all(finite(rows[key]) for key in floats):
        return
    for env, earned in enumerate(reward):
        if fault := spoiled({key: rows[key][env] for key in floats}, floats, float(earned)):
            raise UserError(f"environment {env}: {fault}: take --envs.backend serial, which restarts such environments")


def finite(array: np.ndarray) -> bool:
    """Whether all numbers are: a dot product says so in a third of the time of asking each, unless it overflows."""
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def actions(space: gymnasium.Space, values: np.ndarray, count: int) -> None:
    """Refuse actions for N environments that are not of their space."""
    shape = (count, *(space.shape or ()))
    if values.shape != shape:
        raise UserError(f"actions have shape {values.shape}, the environments want {shape}: send one action each")
    kinds = "f" if isinstance(space, spaces.Box) else "iu"
    if values.dtype.kind not in kinds:
        raise UserError(f"actions are {values.dtype}, the environments want {space.dtype}: send that dtype")
    low, high = action_bounds(space)
    slack = 1e-5 * np.maximum(1.0, np.abs(np.where(np.isfinite(high), high, 0.0))) if kinds == "f" else 0
    good = (values >= low - slack) & (values <= high + slack)  # NaN is neither
    if not good.all():
        env, *index = (int(number) for number in np.argwhere(~good)[0])
        bounds = [np.broadcast_to(bound, shape[1:])[tuple(index)].item() for bound in (low, high)]
        value = values[(env, *index)].item()
        raise UserError(f"environment {env}: action{at(index)} is {value}, outside of {bounds}: clip it")


def action_bounds(space: gymnasium.Space) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest action, both allowed."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    assert isinstance(space, spaces.Discrete)
    return np.asarray(space.start), np.asarray(space.start + space.n - 1)


def not_finite(array: np.ndarray) -> str:
    """A phrase naming the first number that is not finite; empty if all are."""
    array = np.asarray(array)
    if array.dtype.kind not in "fc" or np.isfinite(array).all():
        return ""
    index = tuple(int(number) for number in np.argwhere(~np.isfinite(array))[0])
    word = "NaN" if np.isnan(array[index]) else "infinity"
    return f"has {word}{at(index)}" if index else f"is {word}"


def at(index: tuple[int, ...] | list[int]) -> str:
    """A phrase for a place in an array; empty for a scalar."""
    if not index:
        return ""
    return f" at index {index[0] if len(index) == 1 else tuple(index)}"
