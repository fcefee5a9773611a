"""TensorBoard events in the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from ...agents.base import Family
from ..disk import writing
from ..video import Clip
from .pages import layout


class TensorBoardSink:
    """Scalars, a page that shows those of an agent's family together, videos as animated images, the configuration and
    advice as text.

    A resumed run tells TensorBoard to forget what lies after its checkpoint.
    """

    def __init__(
        self, folder: Path, resume_step: int | None = None, config: str = "", family: Family = "other"
    ) -> None:
        self._folder = folder
        purge = None if resume_step is None else resume_step + 1
        with writing(folder):
            self._writer: SummaryWriter | None = SummaryWriter(str(folder), purge_step=purge, flush_secs=10)
            if config:
                self._writer.add_text("config", f"```\n{config}\n```", resume_step or 0)
            if page := layout(family):
                self._writer.add_custom_scalars(page)

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Queue events; they reach the disk within ten seconds."""
        writer = self._open()
        events: Any = writer.file_writer
        with writing(self._folder):
            for name, value in scalars.items():
                writer.add_scalar(name, value, step)
            for name, frames in videos.items():
                events.add_summary(animation(name, Clip.of(frames)), step)

    def advise(self, step: int, lines: list[str]) -> None:
        """Queue advice as text."""
        with writing(self._folder):
            self._open().add_text("advice", "\n\n".join(lines), step)

    def _open(self) -> SummaryWriter:
        if self._writer is None:
            raise ValueError(f"the events of {self._folder} are closed")
        return self._writer

    def close(self) -> None:
        """Write what is queued and close the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with writing(self._folder):
                writer.close()


def animation(name: str, clip: Clip) -> Summary:
    """An image summary that holds an animated GIF, which browsers play."""
    _, height, width, _ = clip.shape
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=clip.gif())
    return Summary(value=[Summary.Value(tag=name, image=image)])
