"""Videos as animated GIFs in a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..video import Clip, write_bytes


class VideosSink:
    """One file per video, named after it and its step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Write the videos; scalars are for other sinks."""
        for name, frames in videos.items():
            write_bytes(self._folder / file_name(name, step), Clip.of(frames).gif())

    def close(self) -> None:
        """Nothing stays open."""


def file_name(name: str, step: int) -> str:
    """The file of a video: names sort by step."""
    return f"{name.replace('/', '_')}_{step:09d}.gif"
