"""Spaces and values of the godot-rl protocol: what a game declares in JSON as Gymnasium's spaces, and what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from ...config.errors import UserError

Declared = Mapping[str, Mapping[str, Any]]
"""Name -> what the game says of an observation or an action."""

IMAGE = "2d"
"""Names with this in them carry images: bytes, written as hexadecimal digits."""


def of_first(declared: Any) -> Declared:
    """What is declared for the first agent: newer games send a list, older ones what holds for all."""
    return declared[0] if isinstance(declared, list) else declared


def observation_space(declared: Declared) -> Dict:
    """The space of an agent's observations. Vectors are unbounded, since no game is held to its bounds."""
    return Dict({key: _observation(key, entry) for key, entry in declared.items()})


def _observation(key: str, entry: Mapping[str, Any]) -> gymnasium.Space:
    if entry.get("space") == "discrete":
        return Discrete(int(entry["size"]))
    if entry.get("space") != "box":
        raise UserError(f"the game shows {key!r} as {entry.get('space')!r}: only box and discrete are known")
    shape = tuple(int(side) for side in entry["size"])
    if IMAGE in key:
        return Box(0, 255, (*shape[:2], min(shape[2], 3)) if len(shape) == 3 else shape, np.uint8)
    return Box(-np.inf, np.inf, shape, np.float32)


def observation(declared: Declared, shown: Mapping[str, Any]) -> dict[str, Any]:
    """What an agent sees, as arrays of its space; of a colour image with transparency the colours are kept."""
    return {key: _value(key, entry, shown[key]) for key, entry in declared.items()}


def _value(key: str, entry: Mapping[str, Any], value: Any) -> Any:
    if entry["space"] == "discrete":
        return np.int64(value)
    shape = [int(side) for side in entry["size"]]
    if IMAGE in key:
        image = np.frombuffer(bytes.fromhex(value), np.uint8).reshape(shape)
        return image[..., :3].copy() if image.ndim == 3 else image.copy()
    return np.array(value, np.float32).reshape(shape)


def action_space(declared: Declared) -> gymnasium.Space:
    """The space of an agent's actions; a single action is not put into a Dict."""
    found = {key: _action(key, entry) for key, entry in declared.items()}
    return next(iter(found.values())) if len(found) == 1 else Dict(found)


def _action(key: str, entry: Mapping[str, Any]) -> gymnasium.Space:
    if entry.get("action_type") == "discrete":
        return Discrete(int(entry["size"]))
    if entry.get("action_type") == "continuous":
        return Box(-1.0, 1.0, (int(entry["size"]),), np.float32)
    raise UserError(f"the game takes {key!r} as {entry.get('action_type')!r}: only discrete and continuous are known")


def action(declared: Declared, value: Any) -> dict[str, Any]:
    """An action of the space as JSON has it."""
    chosen = value if len(declared) > 1 else dict.fromkeys(declared, value)
    return {key: np.asarray(chosen[key]).tolist() for key in declared}
