"""Runs that belong together, and what to call them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from .records import Record

By = Literal["config", "folder", "run"]
TOLD = 3
"""Runs that differ in more options than this are told apart by their folders."""
ASIDE = ("seed", "logdir", "device", "run.", "log.", "envs.backend", "envs.workers", "envs.timeout",
         "envs.max_restarts", "envs.checks")  # fmt: skip
"""Options (or groups of them) in which runs of one curve may differ: they change nothing in how an agent learns."""


def groups(runs: Sequence[Record], by: By) -> dict[str, list[Record]]:
    """Runs by label, in the order they came: those that differ only in the seed, those of one folder, or each alone."""
    together: dict[Any, list[Record]] = {}
    for run in runs:
        key = {"config": tuple(settings(run).items()), "folder": run.folder.resolve().parent, "run": id(run)}[by]
        together.setdefault(key, []).append(run)
    named: dict[str, list[Record]] = {}
    members = list(together.values())
    for label, group in zip(labels(members, by), members):
        named[label] = group
    return named


def settings(run: Record) -> dict[str, Any]:
    """The options that make a run what it is."""
    return {name: value for name, value in sorted(run.options.items()) if not name.startswith(ASIDE)}


def labels(members: Sequence[Sequence[Record]], by: By) -> list[str]:
    """A label for each group: what sets its options apart from those of the others, or where it lies."""
    first = [settings(group[0]) for group in members]
    apart = [name for name in first[0] if len({str(each.get(name)) for each in first}) > 1]
    if by == "config" and len(members) == 1:
        return [str(first[0]["agent.name"])]
    if by == "config" and len(apart) <= TOLD:
        words = [name.rpartition(".")[2] for name in apart]
        names = words if len(set(words)) == len(words) else apart
        told = [[shown(each.get(name)) for name in apart] for each in first]
        return distinct([", ".join(f"{name} {value}" for name, value in zip(names, each)) for each in told])
    return distinct([place(group, by) for group in members])


def place(group: Sequence[Record], by: By) -> str:
    """The name of the folder that holds a group."""
    whole = [str(run.folder.resolve()) for run in group]
    if by == "folder":
        return Path(whole[0]).parent.name
    return Path(os.path.commonpath(whole)).name


def shown(value: Any) -> str:
    """A value of an option as a person writes it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def shown_score(value: float | None) -> str:
    """A score as a person writes it: small ones, such as losses, with four digits."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that were there before."""
    return [name if name not in names[:i] else f"{name} ({names[:i].count(name) + 1})" for i, name in enumerate(names)]
