"""What the two ways to play an Atari game share: how it is shown and played, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box

from ...config.errors import UserError, nearest
from ...config.schema import AtariConfig, EnvConfig

REPEAT = 4
FRAMES = 108_000
"""Longest episode in frames: half an hour of play."""


@dataclass(frozen=True)
class Protocol:
    """How a game is shown and played, with the suite's own choices filled in."""

    repeat: int
    size: int
    gray: bool
    stack: int
    limit: int
    """Longest episode in agent steps; 0 is none."""
    marks_lives: bool
    """A lost life counts as a terminal."""
    game: AtariConfig

    @property
    def space(self) -> Box:
        """The space of observed images."""
        return Box(0, 255, (self.size, self.size, (1 if self.gray else 3) * self.stack), np.uint8)


def protocol(options: EnvConfig, training: bool) -> Protocol:
    """The protocol that options ask for; by default that of Dreamer on Atari-100k."""
    repeat = options.repeat or REPEAT
    return Protocol(
        repeat=repeat,
        size=options.size or 64,
        gray=bool(options.gray),
        stack=options.stack or 1,
        limit=FRAMES // repeat if options.time_limit is None else options.time_limit,
        marks_lives=training and options.atari.life_loss == "terminal",
        game=options.atari,
    )


def rom_path(name: str) -> Path:
    """The file of a game."""
    from ale_py import roms

    path = roms.get_rom_path(name)
    if path is None:
        raise UserError(f"unknown Atari game {name!r}: {nearest(name, roms.get_all_rom_ids())}")
    return path
