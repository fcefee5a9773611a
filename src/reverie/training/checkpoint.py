"""Checkpoints: one file, written whole or not at all, read without running code from it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config.errors import UserError
from ..data.whole import reason

FORMAT = 2
FOLDER = "checkpoints"


def save(path: Path, state: dict[str, Any]) -> None:
    """Write the state beside its place, then move it there: a run that dies in between keeps the old file."""
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            torch.save({"format": FORMAT, **_without_arrays(state)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except (OSError, RuntimeError) as error:  # torch's writer hides a full disk behind a RuntimeError
        partial.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path}: {reason(error)}: make room, then --resume; the one before it is kept"
        ) from error


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """The state in a checkpoint."""
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise UserError(f"no checkpoint {path}: {_present(path.parent)}") from None
    except Exception as error:  # a file that is no checkpoint can fail in any way
        raise UserError(
            f"{path} is damaged or no checkpoint of ours: take another one ({_present(path.parent)})"
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UserError(f"{path} is no checkpoint of this version: take another one ({_present(path.parent)})")
    return state


def restored(path: Path, restore: Callable[[], None]) -> None:
    """Call what takes a checkpoint's state back; one that does not fit the run is told as such."""
    try:
        restore()
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{path} does not fit this run: {reason(error)}; it may belong to another") from error


def find(logdir: Path, name: str) -> Path:
    """The file of a checkpoint called best, latest, best.pt or by its path."""
    if name in ("best", "latest", "best.pt", "latest.pt"):
        path = logdir / FOLDER / f"{name.removesuffix('.pt')}.pt"
        if name.startswith("best") and not path.exists():
            path = logdir / FOLDER / "latest.pt"
        return path
    given = Path(name)
    return given if given.exists() else logdir / FOLDER / name


def _present(folder: Path) -> str:
    names = sorted(each.name for each in folder.glob("*.pt")) if folder.is_dir() else []
    return f"there is {', '.join(names)}" if names else "the run has saved none yet"


def _without_arrays(value: Any) -> Any:
    """The same with arrays as tensors, which `weights_only` reads back."""
    if isinstance(value, dict):
        return {key: _without_arrays(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_arrays(each) for each in value)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return value.item() if isinstance(value, np.generic) else value
