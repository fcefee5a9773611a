"""Watching an agent: whole episodes in a window where there is a screen, as GIFs where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np

from ..log.video import upscale, write_gif
from .player import Player


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


def play(
    player: Player, episodes: int, seed: int, stochastic: bool, screen: Screen | None, keep: bool
) -> Iterator[Played]:
    """Play episodes one after another; each is given when it ends, with its frames if they are to be kept."""
    with player.make_env() as env:
        for number in range(1, episodes + 1):
            episode = Played(number)
            observation, _ = env.reset(seed=seed + number)
            player.reset()
            ended = False
            while not ended:
                if not _look(env, observation, episode, screen, keep):
                    return
                observation, reward, terminated, truncated, info = env.step(player.act(observation, stochastic))
                episode.score += float(reward)
                episode.length += 1
                ended = terminated or truncated
            _look(env, observation, episode, screen, keep)
            summary: dict[str, Any] = info.get("summary", info)
            episode.success = float(summary["success"]) if "success" in summary else None
            yield episode


def _look(env: gymnasium.Env, observation: dict[str, Any], episode: Played, screen: Screen | None, keep: bool) -> bool:
    if screen is None and not keep:
        return True
    frame = picture(env, observation)
    if frame is not None and keep:
        episode.frames.append(frame)
    return screen is None or frame is None or screen.show(frame)


def picture(env: gymnasium.Env, observation: dict[str, Any]) -> np.ndarray | None:
    """What a person would see: the environment's own rendering, else its image observation, else nothing."""
    frame: Any = env.render() if env.render_mode == "rgb_array" else None
    if frame is None and "image" in observation:
        frame = observation["image"]
    if frame is None:
        return None
    frame = np.asarray(frame)
    return np.ascontiguousarray(frame[..., :3] if frame.shape[-1] >= 3 else np.repeat(frame[..., -1:], 3, -1))


def save_gif(episode: Played, folder: Path, fps: int) -> Path | None:
    """The GIF of an episode, its return and length in its name; None if there was nothing to see."""
    if not episode.frames:
        return None
    path = folder / f"episode_{episode.number:03d}_reward_{episode.score:.0f}_steps_{episode.length}.gif"
    folder.mkdir(parents=True, exist_ok=True)
    write_gif(path, upscale(np.stack(episode.frames), 240), fps)
    return path


def open_screen(fps: int) -> Screen | None:
    """A window, or None where there is no screen."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return None
    try:
        import pygame

        return Window(pygame, fps)
    except (ImportError, RuntimeError):
        return None


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
