"""Presets and options become one checked configuration, on the command line as in Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import names, owners
from .options import replaced
from .presets import DEFAULT, stacked
from .schema import Config


def resolved(presets: Iterable[str], values: dict[str, Any], stored: Config | None = None) -> Config:
    """The configuration that presets and options make, over a stored one if there is one, else over the default."""
    presets = tuple(presets)
    base = stacked(presets or (() if stored or "task" in values else DEFAULT), stored)
    given = names.spelled_out(values, values.get("agent.name", base.agent.name))
    config = replaced(base, given)
    owners.check_presets(presets, config)
    owners.warn_of_idle(given, config)
    owners.warn_of_unused(presets, given, config)
    return config
