"""Videos: arrays of frames (T, h, w, 3) made watchable, and written as animated GIFs."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..config.whole import write_whole
from .disk import RESUME, writing

GIF_MAX_FPS = 50
"""Viewers slow down GIFs whose frames last less than two hundredths of a second."""

PALETTE_PIXELS = 1 << 21
"""Of longer videos, evenly spread frames of about this many pixels choose the colours."""

REEL_MIN_SIDE = 80
"""Pixels that the shorter side of an evaluation's episodes has at least: enough for a line of text."""

GAP_GRAY = 64


class Clip(np.ndarray):
    """Frames (T, h, w, 3) of uint8 that know their speed, and are encoded once however many sinks want them."""

    fps: float
    _gif: bytes | None

    @staticmethod
    def of(frames: np.ndarray, fps: float = 20) -> Clip:
        """The frames as a clip; a clip stays as it is."""
        if isinstance(frames, Clip):
            return frames
        clip = rgb(frames).view(Clip)
        clip.fps = fps
        return clip

    def __array_finalize__(self, source: Any) -> None:
        self.fps = getattr(source, "fps", 20)
        self._gif = None

    def gif(self) -> bytes:
        """The clip as an animated GIF."""
        if self._gif is None:
            self._gif = encode_gif(self, self.fps)
        return self._gif


def rgb(frames: np.ndarray) -> np.ndarray:
    """Frames in colour (T, h, w, 3); of stacked images the newest, which is the last along the channels."""
    if frames.dtype != np.uint8 or frames.ndim not in (3, 4) or not frames.size:
        raise ValueError(f"a video is uint8 (T, h, w, c), not {frames.dtype} {frames.shape}")
    if frames.ndim == 3:
        frames = frames[..., None]
    if frames.shape[-1] % 3 == 0:
        return np.ascontiguousarray(frames[..., -3:])
    return frames[..., -1:].repeat(3, axis=-1)


def upscale(frames: np.ndarray, min_side: int) -> np.ndarray:
    """Frames enlarged by a whole factor until the shorter side has at least `min_side` pixels."""
    factor = -(-min_side // min(frames.shape[1:3]))
    if factor <= 1:
        return frames
    return frames.repeat(factor, axis=1).repeat(factor, axis=2)  # (T, h * factor, w * factor, c)


def downscale(frames: np.ndarray, max_side: int) -> np.ndarray:
    """Frames made smaller by a whole factor until the longer side has at most `max_side` pixels."""
    factor = -(-max(frames.shape[1:3]) // max_side)
    if factor <= 1:
        return frames
    return np.stack([np.asarray(Image.fromarray(frame).reduce(factor)) for frame in rgb(frames)])


def side_by_side(clips: Sequence[np.ndarray], limit: int = 3) -> np.ndarray:
    """The first `limit` clips next to each other in one video; a shorter clip holds its last frame."""
    shown = [rgb(np.asarray(clip)) for clip in clips[:limit]]
    if not shown:
        raise ValueError("no clips to show side by side")
    length = max(len(clip) for clip in shown)
    height = max(clip.shape[1] for clip in shown)
    gap = max(2, height // 64)
    width = sum(clip.shape[2] + gap for clip in shown) - gap
    canvas = np.full((length, height, width, 3), GAP_GRAY, np.uint8)
    left = 0
    for clip in shown:
        place = canvas[:, :, left : left + clip.shape[2]]
        place[: len(clip), : clip.shape[1]] = clip
        place[len(clip) :, : clip.shape[1]] = clip[-1]
        left += clip.shape[2] + gap
    return canvas


def reel(clips: Sequence[np.ndarray], returns: Sequence[float], limit: int = 3) -> np.ndarray:
    """The video of an evaluation: episodes side by side at a size to watch, each under its return."""
    shown = [upscale(rgb(np.asarray(clip)), REEL_MIN_SIDE) for clip in clips[:limit]]
    return side_by_side([caption(clip, f"return {score:.1f}") for clip, score in zip(shown, returns)], limit)


def caption(frames: np.ndarray, text: str, size: int = 12) -> np.ndarray:
    """Frames with a dark strip above them that holds the text."""
    frames = rgb(np.asarray(frames))
    strip = np.full((size + 6, frames.shape[2], 3), 24, np.uint8)
    draw_text(strip[None], text, size)
    return np.concatenate([np.broadcast_to(strip, (len(frames), *strip.shape)), frames], axis=1)  # (T, strip + h, w, 3)


def overlay(frames: np.ndarray, text: str, size: int = 12) -> np.ndarray:
    """Frames with small text in the upper left corner."""
    drawn = rgb(np.array(frames))
    draw_text(drawn, text, size)
    return drawn


def draw_text(frames: np.ndarray, text: str, size: int) -> None:
    """Write white text with a dark rim into frames (T, h, w, 3), cut where it leaves the picture."""
    height, width = frames.shape[1:3]
    picture = Image.new("L", (width, height), 0)
    ImageDraw.Draw(picture).text((3, 1), text, fill=255, font=ImageFont.load_default(size))
    ink = np.asarray(picture) / 255.0  # (h, w)
    bordered = np.pad(ink, 1)
    rim = np.max([bordered[y : y + height, x : x + width] for y in range(3) for x in range(3)], axis=0)
    touched = rim > 0
    darkened = frames[:, touched] * (1.0 - rim[touched])[:, None]  # (T, pixels, 3)
    frames[:, touched] = np.maximum(darkened, ink[touched][:, None] * 255.0).astype(np.uint8)


def write_gif(path: Path, frames: np.ndarray, fps: float = 20) -> None:
    """Write frames as an animated GIF, in a folder that the user may have chosen; a reader never sees half a file."""
    data = encode_gif(rgb(np.asarray(frames)), fps)
    write_bytes(path, data, mend="make room or choose another --gif-dir")


def write_bytes(path: Path, data: bytes, mend: str = RESUME) -> None:
    """Write a file, in a folder that is made if need be; a reader never sees half of it."""
    with writing(path, mend):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: file.write(data), alone=False)


def encode_gif(frames: np.ndarray, fps: float) -> bytes:
    """An animated GIF of frames (T, h, w, 3), with one palette for all of them so that nothing flickers."""
    stride = max(1, int(np.ceil(fps / GIF_MAX_FPS)))
    kept = np.asarray(frames)[::stride]
    colours = palette(kept)
    images = [Image.fromarray(frame).quantize(palette=colours, dither=Image.Dither.NONE) for frame in kept]
    target = io.BytesIO()
    images[0].save(
        target,
        "GIF",
        save_all=True,
        append_images=images[1:],
        duration=[10 * delay for delay in gif_delays(len(kept), fps / stride)],
        loop=0,
    )
    return target.getvalue()


def palette(frames: np.ndarray) -> Image.Image:
    """A picture whose palette holds the 256 colours that fit the frames best."""
    stride = -(-frames[..., 0].size // PALETTE_PIXELS)
    sample = frames[::stride]
    return Image.fromarray(sample.reshape(-1, sample.shape[2], 3)).quantize(256)  # (T * h, w, 3)


def gif_delays(count: int, fps: float) -> list[int]:
    """How long each frame is shown, in the whole hundredths of a second GIFs know, so that the sum is right."""
    times = [round(100 * index / fps) for index in range(count + 1)]
    return [after - before for before, after in itertools.pairwise(times)]
