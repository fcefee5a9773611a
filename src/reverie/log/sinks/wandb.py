"""Weights & Biases."""

from __future__ import annotations

import importlib
import io
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...config.errors import UserError, extra, first_line
from ...config.schema import LogConfig
from ..video import Clip, write_bytes

RUN_FILE = "wandb_run.txt"


class WandbSink:
    """One W&B run per run folder: its id is kept there, so that a resumed run goes on in it."""

    def __init__(self, folder: Path, config: LogConfig, params: Mapping[str, Any]) -> None:
        self._wandb = installed()
        known = (folder / RUN_FILE).read_text().strip() if (folder / RUN_FILE).exists() else ""
        self.run_id = known or secrets.token_hex(4)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._run = self._wandb.init(
                dir=str(folder),
                project=config.wandb_project,
                entity=config.wandb_entity or None,
                name=folder.absolute().name,
                id=self.run_id,
                resume="allow",
                config=dict(params),
                # "online" is W&B's default: saying nothing leaves the word to its own WANDB_MODE
                mode="offline" if config.wandb_mode == "offline" else None,
                # its capture of the terminal would record every frame of the live display
                settings=self._wandb.Settings(console="off", quiet=True),
            )
        except self._wandb.errors.Error as error:
            raise UserError(
                f"W&B cannot start: {first_line(error)}: run 'wandb login' or use --log.wandb_mode offline"
            ) from error
        # W&B refuses steps that go back, as those of a resumed run do; as an axis of its own the step may.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        write_bytes(folder / RUN_FILE, f"{self.run_id}\n".encode())

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Queue scalars and videos; W&B sends them from a process of its own."""
        media = {
            name: self._wandb.Video(io.BytesIO(Clip.of(frames).gif()), format="gif") for name, frames in videos.items()
        }
        self._run.log({"step": step, **scalars, **media})

    def close(self) -> None:
        """Wait until W&B's own process has everything; what it writes last may come a moment later."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()


def installed() -> Any:
    """The wandb package."""
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise UserError(f"Weights & Biases is not installed: {extra('wandb')}") from error
