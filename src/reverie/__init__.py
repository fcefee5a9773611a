"""Reinforcement learning with and without a world model.

import reverie
reverie.train(reverie.configure("cartpole_ppo", logdir="logdir/cartpole"))
agent = reverie.load("logdir/cartpole")
action = agent.act(observation)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .api import Outcome, configure, evaluate, load, resume, train
    from .config.errors import UserError
    from .config.schema import Config
    from .tools.player import Player

__all__ = ["Config", "Outcome", "Player", "UserError", "configure", "evaluate", "load", "resume", "train"]

_PLACES = {"Config": "config.schema", "UserError": "config.errors", "Player": "tools.player"}


def __getattr__(name: str) -> Any:
    """Public names, imported when first used: environment workers import this package and must start without torch."""
    if name not in __all__:
        raise AttributeError(f"module 'reverie' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"reverie.{_PLACES.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return [*__all__, "__version__"]
