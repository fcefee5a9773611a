"""Games made with Godot, over the protocol of godot-rl: `godot_rover`, a project's folder, or an exported game.

`godot_rover` is our own, a Godot 3 project in envs/godot/. `godot_/path/to/project` runs a folder with a project.godot,
`godot_/path/to/game.x86_64` a game exported with the godot-rl plugin. Each environment is a process of Godot.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ...config.errors import UserError, nearest
from ...config.schema import EnvConfig, GodotConfig
from ..form import is_image
from ..godot import spaces
from ..godot.game import Game, Launch
from ..registry import Suite

OWN = Path(__file__).parent.parent / "godot"
REPEAT = 8
"""Frames an action is played for, as the plugin has it unless a game says otherwise."""
SERVER = "godot3-server"
PROGRAMS = {"4": (SERVER, "godot3", "godot"), "5": ("godot4", "godot")}
"""Format of a project.godot -> what runs it: Godot 3, Godot 4."""
INSTALL = "apt install godot3-server (Debian), or give --env.godot.program"
HEADLESS = ("--headless", "--disable-render-loop")
"""What keeps a game from drawing: the first is Godot 4's."""


class GodotEnv(gymnasium.Env):
    """A game in a process of its own behind Gymnasium's interface."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, launch: Launch) -> None:
        self._game = Game(launch)
        try:
            told = self._game.introduce()
            if int(told.get("n_agents", 1)) != 1:
                raise UserError(f"the game has {told['n_agents']} agents: make a version with one")
            self._shown = spaces.of_first(told["observation_space"])
            self._taken = spaces.of_first(told["action_space"])
            self.observation_space = spaces.observation_space(self._shown)
            self.action_space = spaces.action_space(self._taken)
        except BaseException:
            self.close()
            raise
        self._images = [key for key, space in self.observation_space.items() if is_image(space)]
        self._picture: np.ndarray | None = None
        self.render_mode = "rgb_array" if self._images else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The first observation of a new episode; the seed is of use to games that read it."""
        super().reset(seed=seed)
        self._game.trim()
        answer = self._game.ask({"type": "reset", "seed": int(self.np_random.integers(2**31))}, "reset")
        return self._observation(answer), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """What an action leads to. A game that says `truncated` in its info ends by a time-out."""
        answer = self._game.ask({"type": "action", "action": [spaces.action(self._taken, action)]}, "step")
        done, (info,) = bool(answer["done"][0]), answer.get("info") or [{}]
        truncated = done and bool(info.get("truncated", False))
        return self._observation(answer), float(answer["reward"][0]), done and not truncated, truncated, info

    def render(self) -> np.ndarray | None:
        """The newest image of the first camera."""
        return None if self._picture is None else self._picture.copy()

    def close(self) -> None:
        """End the game."""
        self._game.close()

    def _observation(self, answer: dict[str, Any]) -> dict[str, Any]:
        found = spaces.observation(self._shown, answer["obs"][0])
        for key in self._images[:1]:
            self._picture = found[key]
        return found


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """The game of that name or at that path."""
    drawn = ("--camera",) if options.godot.camera else HEADLESS
    speed = ("--fixed-fps", "60", "--audio-driver", "Dummy")  # as fast as it goes, and without a sound
    repeat = f"--action_repeat={options.repeat or REPEAT}"
    return GodotEnv(Launch((*program(name, options.godot), *speed, *drawn, repeat), options.godot.timeout))


def program(name: str, options: GodotConfig) -> tuple[str, ...]:
    """What to start: Godot with a project, or an exported game."""
    place = OWN / name if name in tasks() else Path(name).expanduser().resolve()
    project = place / "project.godot"
    if not project.is_file() and not (place.is_file() and os.access(place, os.X_OK)):
        known = nearest(f"godot_{name}", [f"godot_{own}" for own in tasks()])
        raise UserError(f"unknown task 'godot_{name}' (a project or an exported game is named by its path): {known}")
    if options.camera and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise UserError("--env.godot.camera needs a display: put xvfb-run -a before the command (Debian: xvfb, godot3)")
    if not project.is_file():
        return (str(place),)
    return (godot(name, project, options), "--path", str(place))


def godot(name: str, project: Path, options: GodotConfig) -> str:
    """The Godot that runs a project: the one the user names, or the first on the PATH."""
    version = re.search(r"^config_version=(\d+)", project.read_text("utf-8"), re.MULTILINE)
    usual = PROGRAMS.get(version[1] if version else "", PROGRAMS["5"])
    drawing = [each for each in usual if each != SERVER]
    wanted = [options.program] if options.program else drawing if options.camera else usual
    found = next(filter(None, map(shutil.which, wanted)), None)
    if found is None:
        raise UserError(f"task 'godot_{name}' needs {' or '.join(wanted)}, which is not there: {INSTALL}")
    return found


def tasks() -> list[str]:
    """Our own projects."""
    return sorted(project.parent.name for project in OWN.glob("*/project.godot"))


SUITE = Suite(
    name="godot",
    about="games made with Godot: our own, a project's folder, or an exported one",
    make=make,
    tasks=list,
    example="godot_rover",
    install=INSTALL,
    programs=PROGRAMS["4"],
    repeat=REPEAT,
    handles=frozenset({"repeat"}),
)
