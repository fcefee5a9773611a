"""Checkpoints: one file, written whole or not at all, read without running code from it."""

from __future__ import annotations

import logging
import shlex
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config.errors import Unwritable, UserError
from ..config.whole import reason, write_whole

LOG = logging.getLogger("reverie")

FORMAT = 3
FOLDER = "checkpoints"
TOLD = 200
"""Characters that are told of what does not fit."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write the state: a run that dies in between keeps the old file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: torch.save({"format": FORMAT, **_without_arrays(state)}, file))
    except (OSError, RuntimeError) as error:  # torch's writer hides a full disk behind a RuntimeError
        kept = "; the one before it is kept" if path.exists() else ""
        raise Unwritable(f"cannot write {path}: {reason(error)}: make room, then --resume{kept}") from error


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """The state in a checkpoint."""
    try:
        return _read(path, device)
    except FileNotFoundError:
        raise UserError(f"no checkpoint {path}: {_present(path)}") from None
    except ValueError as error:
        raise UserError(f"{path} {error}: take another one ({_present(path)})") from error


def load_latest(path: Path) -> dict[str, Any]:
    """The state that a run goes on from; where it cannot be read, the error says how to go on all the same."""
    try:
        return _read(path)
    except ValueError as error:
        raise UserError(f"{path} {error}: {way_on(path)}") from error


def best_return(best: Path, known: float) -> float:
    """The return of a run's best checkpoint, which may be newer than the latest, if the run was killed."""
    try:
        return max(known, _read(best)["best"])
    except FileNotFoundError:
        return known
    except ValueError as error:
        LOG.warning("%s %s: the next evaluation writes it anew", best, error)
        return float("-inf")


def way_on(latest: Path) -> str:
    """What to do where a run cannot go on from its latest checkpoint."""
    steps = {path: step for path, step in _others(latest).items() if step is not None}
    if not steps:
        return f"there is no other to go on from, use another --logdir, or remove {latest.parent.parent} to start over"
    newest = max(steps, key=lambda path: steps[path])
    words = shlex.join(["cp", str(newest), str(latest)])
    return f"to go on from step {steps[newest]:,} call `{words}`, then --resume"


def _read(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """The state in a file; a ValueError says what else it is."""
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # a file that is no checkpoint can fail in any way
        raise ValueError("is damaged or no checkpoint of ours") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError("is no checkpoint of this version")
    return state


def _others(path: Path) -> dict[Path, int | None]:
    """The checkpoints beside one that can be read, and the step of each that has one."""
    found: dict[Path, int | None] = {}
    for each in sorted(path.parent.glob("*.pt")):
        with suppress(ValueError, FileNotFoundError):
            found |= {each: _read(each).get("counters", {}).get("step")} if each != path else {}
    return found


def restored(path: Path, restore: Callable[[], None]) -> None:
    """Call what takes a checkpoint's state back; one that does not fit the run is told as such."""
    try:
        restore()
    except torch.OutOfMemoryError:
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        first, *more = [line.strip() for line in str(error).splitlines()] or [""]
        told = more[0] if more and first.endswith(":") else reason(error)  # torch lists below what does not fit
        told = textwrap.shorten(told.rstrip(". "), TOLD, placeholder=" ...")
        raise UserError(f"{path} does not fit this run: {told}; it may belong to another") from error


def find(logdir: Path, name: str) -> Path:
    """The file of a checkpoint called best, latest, best.pt or by its path."""
    if name in ("best", "latest", "best.pt", "latest.pt"):
        path = logdir / FOLDER / f"{name.removesuffix('.pt')}.pt"
        if name.startswith("best") and not path.exists():
            path = logdir / FOLDER / "latest.pt"
        return path
    given = Path(name)
    return given if given.exists() else logdir / FOLDER / name


def _present(missing: Path) -> str:
    names = [each.name for each in _others(missing)]
    return f"there is {', '.join(names)}" if names else "there is none"


def _without_arrays(value: Any) -> Any:
    """The same with arrays as tensors, which `weights_only` reads back."""
    if isinstance(value, dict):
        return {key: _without_arrays(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_arrays(each) for each in value)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return value.item() if isinstance(value, np.generic) else value
