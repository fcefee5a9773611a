"""Watching an agent: whole episodes in a window where there is a screen, as GIFs where there is none."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np

from ..envs.form import Observation
from ..envs.slot import summary
from ..log.video import overlay, rgb, upscale, write_gif
from .player import Player

MIN_SIDE = 240
"""Pixels that the shorter side of GIFs, and of pictures with text in them, has at least."""

UNSEEN = ("dummy", "offscreen", "evdev")
"""What SDL draws to where a display is named but does not answer."""


@dataclass
class Played:
    """One episode that was played."""

    number: int
    score: float = 0.0
    length: int = 0
    success: float | None = None
    frames: list[np.ndarray] = field(default_factory=list)


class Screen(Protocol):
    """Something that shows frames; False means the person closed it."""

    def show(self, frame: np.ndarray) -> bool: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Show:
    """How episodes are shown: on a screen, in frames that are kept, or not at all."""

    screen: Screen | None = None
    keep: bool = False
    overlay: bool = False
    """Whether the pictures say the return so far, the last reward and the return that the agent expects."""

    @property
    def wanted(self) -> bool:
        """Whether pictures have to be drawn."""
        return self.keep or self.screen is not None

    def __enter__(self) -> Show:
        return self

    def __exit__(self, *_: object) -> None:
        if self.screen is not None:
            self.screen.close()

    def take(self, frame: np.ndarray | None, episode: Played, text: str) -> bool:
        """Show a frame of an episode; False means the person closed the screen."""
        if frame is None:
            return True
        if self.overlay:
            frame = overlay(upscale(frame[None], MIN_SIDE), text)[0]
        if self.keep:
            episode.frames.append(frame)
        return self.screen is None or self.screen.show(frame)


def play(
    player: Player, env: gymnasium.Env, episodes: int, seed: int, stochastic: bool, show: Show
) -> Iterator[Played]:
    """Play episodes one after another in an environment of the player's task; each is given when it ends."""
    for number in range(1, episodes + 1):
        episode = Played(number)
        observation, info = env.reset(seed=seed + number)
        player.reset()
        ended, reward = False, 0.0
        while True:
            action = player.act(observation, stochastic)  # of the last observation too, for what it thinks of it
            text = note(episode.score, reward, player.value)
            if show.wanted and not show.take(picture(env, player.seen), episode, text):
                return
            if ended:
                break
            observation, paid, terminated, truncated, info = env.step(action)
            reward = float(paid)
            episode.score += reward
            episode.length += 1
            ended = terminated or truncated
        episode.success = summary(info).get("success")
        yield episode


def note(score: float, reward: float, value: float) -> str:
    """What an overlay says; agents without a critic have no value."""
    return f"return {score:.1f}  reward {reward:.1f}" + ("" if math.isnan(value) else f"  value {value:.1f}")


def picture(env: gymnasium.Env, seen: Observation) -> np.ndarray | None:
    """What a person would see: the environment's own rendering, else an image it was seen by, else nothing."""
    frame: Any = env.render() if env.render_mode == "rgb_array" else None
    if frame is None:
        frame = next((value for value in seen.values() if value.ndim == 3 and value.dtype == np.uint8), None)
    if frame is None:
        return None
    return rgb(np.asarray(frame)[None])[0]


def save_gif(episode: Played, folder: Path, fps: int) -> Path | None:
    """The GIF of an episode, its return and length in its name; None if there was nothing to see."""
    if not episode.frames:
        return None
    path = folder / f"episode_{episode.number:03d}_reward_{episode.score:.0f}_steps_{episode.length}.gif"
    write_gif(path, upscale(np.stack(episode.frames), MIN_SIDE), fps)
    return path


def open_screen(fps: int) -> Screen | None:
    """A window, or None where there is no screen."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return None
    try:
        import pygame

        window = Window(pygame, fps)
    except (ImportError, RuntimeError):
        return None
    return None if pygame.display.get_driver() in UNSEEN else window


class Window:
    """A pygame window scaled to the frames it shows."""

    def __init__(self, pygame: Any, fps: int) -> None:
        self.pygame, self.fps = pygame, fps
        pygame.display.init()
        self.clock = pygame.time.Clock()
        self.surface: Any = None

    def show(self, frame: np.ndarray) -> bool:
        """Draw a frame and wait for its time; False when the window was closed."""
        pygame = self.pygame
        height, width = frame.shape[:2]
        scale = max(1, round(480 / height))
        if self.surface is None:
            self.surface = pygame.display.set_mode((width * scale, height * scale))
            pygame.display.set_caption("reverie play")
        drawn = pygame.surfarray.make_surface(frame.swapaxes(0, 1))
        self.surface.blit(pygame.transform.scale(drawn, self.surface.get_size()), (0, 0))
        pygame.display.flip()
        self.clock.tick(self.fps)
        return not any(event.type == pygame.QUIT for event in pygame.event.get())

    def close(self) -> None:
        """Close the window."""
        self.pygame.display.quit()
