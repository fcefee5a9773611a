"""Super Mario Bros. on an emulator, played one stage at a time.

Title screen, cut scenes and waits are skipped as in the package gym-super-mario-bros, and rewards agree with its own:
the distance covered minus ticks of the game's clock. An episode ends with Mario's death or at the flag; the clock kills
Mario when it runs out and is no time limit. Every episode of a stage begins alike, unless idle frames go before it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from ...config.errors import UserError
from ...config.schema import EnvConfig
from ..images import AreaResize
from ..registry import Suite
from .nes import DOWN, INSTALL, LEFT, RIGHT, START, UP, A, B, Emulator, package_folder

REPEAT = 4
WALKS = (0, RIGHT, RIGHT | A, RIGHT | B, RIGHT | A | B)
ACTIONS = {
    "right": WALKS,
    "simple": (*WALKS, A, LEFT),
    "complex": (*WALKS, A, LEFT, LEFT | A, LEFT | B, LEFT | A | B, DOWN, UP),
}
STAGES = {f"{world}-{stage}": (world, stage) for world in range(1, 9) for stage in range(1, 5)}
RANDOM = "random"

# Where the game keeps what in memory.
PLAYER_STATE, ENEMIES, FLOATING, X_PAGE, X, Y_PAGE, Y = 0x0E, slice(0x16, 0x1B), 0x1D, 0x6D, 0x86, 0xB5, 0x3B8
AREA_TIMER, SIZE, LIVES, STAGE, WORLD, AREA, MODE, START_TIMER = 0x6DE, 0x756, 0x75A, 0x75C, 0x75F, 0x760, 0x770, 0x7A0
SCORE, COINS, CLOCK = (0x7DE, 6), (0x7ED, 2), (0x7F8, 3)
"""Address of the first decimal digit and number of digits."""

BUSY = frozenset({0, 1, 2, 3, 4, 5, 7})
"""States in which Mario does not obey: appearing, climbing out, in a pipe, walking by himself, entering."""
DEAD, DYING = 6, 11
FLAGPOLE, BOWSER, SLIDING = 0x31, 0x2D, 3
VICTORY = 2
PIPE_WORLDS = frozenset({1, 2, 4, 7})
"""Worlds with one more area: before their second stage Mario walks into a pipe."""

MAX_STEP = 5
"""Mario moves at most 3 pixels a frame; a larger change is a change of place."""
MAX_REWARD = 15.0
PATIENCE = 3000
"""Frames after which a wait for the game is given up; the longest takes a few hundred."""


class Game:
    """A console that stands at the beginning of a stage, and what its memory says."""

    def __init__(self, world: int, stage: int) -> None:
        self.console = Emulator(package_folder("gym_super_mario_bros") / "_roms" / "super-mario-bros.nes")
        self.target = (world - 1, stage - 1, stage - 1 + int(world in PIPE_WORLDS and stage > 1))
        self.pass_title()
        self.console.backup()

    def pass_title(self) -> None:
        """Press START until the stage's clock runs."""
        self.tap()
        for _ in range(PATIENCE):
            if self.clock > 0:
                break
            self.tap(choose=True)
            self.ram[START_TIMER] = 0
        before = self.clock
        for _ in range(PATIENCE):
            if self.clock < before:
                return
            before = self.clock
            self.tap()
        raise UserError("Super Mario Bros. did not start: install gym-super-mario-bros again")

    def tap(self, choose: bool = False) -> None:
        """Press and release START; in between the stage to load can be chosen."""
        self.console.frame(START)
        if choose:
            self.ram[WORLD], self.ram[STAGE], self.ram[AREA] = self.target
        self.console.frame()

    def skip(self) -> None:
        """Play on without the player while Mario does not obey, and shorten the waits."""
        if 1 < self.ram[AREA_TIMER] < 255:
            self.ram[AREA_TIMER] = 1
        for _ in range(PATIENCE):
            if self.ram[PLAYER_STATE] not in BUSY and self.ram[MODE] != VICTORY:
                return
            self.ram[START_TIMER] = 0
            self.console.frame()

    @property
    def ram(self) -> ctypes.Array[ctypes.c_ubyte]:
        """The console's memory."""
        return self.console.ram

    @property
    def clock(self) -> int:
        """Time left in the game's own units."""
        return self.console.number(*CLOCK)

    @property
    def x(self) -> int:
        """Mario's distance from the beginning of the stage in pixels."""
        return self.ram[X_PAGE] * 256 + self.ram[X]

    @property
    def dead(self) -> bool:
        """Whether Mario is dead, dying, or has fallen below the screen."""
        return self.ram[PLAYER_STATE] in (DEAD, DYING) or self.ram[Y_PAGE] > 1

    @property
    def flag(self) -> bool:
        """Whether Mario slides down the flagpole or has beaten the castle; on a vine he slides without a pole."""
        sliding = self.ram[FLOATING] == SLIDING
        return self.ram[MODE] == VICTORY or (sliding and any(kind in (FLAGPOLE, BOWSER) for kind in self.ram[ENEMIES]))

    def info(self) -> dict[str, Any]:
        """What users of gym-super-mario-bros find in `info`."""
        height = 255 - self.ram[Y]
        return {
            "coins": self.console.number(*COINS),
            "flag_get": self.flag,
            "life": self.ram[LIVES],
            "score": self.console.number(*SCORE),
            "stage": self.ram[STAGE] + 1,
            "status": ("small", "tall", "fireball")[min(self.ram[SIZE], 2)],
            "time": self.clock,
            "world": self.ram[WORLD] + 1,
            "x_pos": self.x,
            "y_pos": height if self.ram[Y_PAGE] >= 1 else 255 + height,
        }


class Mario(gymnasium.Env):
    """One of some stages at a time, as a Gymnasium environment with colour images (h, w, 3)."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}
    render_mode = "rgb_array"

    def __init__(self, stages: list[tuple[int, int]], options: EnvConfig) -> None:
        self.stages = stages
        self.options = options.mario
        self.repeat = options.repeat or REPEAT
        self.limit = options.time_limit or 0
        self.buttons = ACTIONS[options.mario.actions]
        self.games: dict[tuple[int, int], Game] = {}
        self.game = self.start(stages[0])
        size = options.size or 64
        height, width, _ = self.render().shape
        self.resize = AreaResize(height, width, size)
        self.observation_space = Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = Discrete(len(self.buttons))

    def get_action_meanings(self) -> list[str]:
        """The buttons of each action."""
        names = {LEFT: "left", RIGHT: "right", UP: "up", DOWN: "down", A: "A", B: "B"}
        return [" ".join(name for bit, name in names.items() if held & bit) or "noop" for held in self.buttons]

    def start(self, stage: tuple[int, int]) -> Game:
        """The game of a stage at its beginning."""
        if stage not in self.games:
            self.games[stage] = Game(*stage)
        self.games[stage].console.restore()
        return self.games[stage]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The first observation of a new episode."""
        super().reset(seed=seed)
        self.game = self.start(self.stages[int(self.np_random.integers(len(self.stages)))])
        for _ in range(int(self.np_random.integers(self.options.noops + 1))):
            self.game.console.frame()
            self.game.skip()
        self.steps, self.x, self.clock = 0, self.game.x, self.game.clock
        return self.resize(self.render()), self.game.info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """What Gymnasium asks for, after repeating the action."""
        reward, over = 0.0, False
        for _ in range(self.repeat):
            self.game.console.frame(self.buttons[int(action)])
            reward += self.frame_reward()
            over = self.game.dead or self.game.flag
            info = self.game.info()
            if over:
                break
            self.game.skip()
        self.steps += 1
        cut = self.steps == self.limit
        if over or cut:
            info["summary"] = {"success": float(info["flag_get"]), "x_pos": float(info["x_pos"])}
        return self.resize(self.render()), reward, over, cut, info

    def frame_reward(self) -> float:
        """What the last frame earned."""
        moved, ticks = self.game.x - self.x, self.game.clock - self.clock
        self.x, self.clock = self.game.x, self.game.clock
        if self.game.dead:
            return -self.options.death_penalty
        gain = (moved if abs(moved) <= MAX_STEP else 0) + min(ticks, 0)
        return float(np.clip(gain, -MAX_REWARD, MAX_REWARD)) + self.options.flag_bonus * self.game.flag

    def render(self) -> np.ndarray:
        """The screen in full size."""
        return self.game.console.screen()

    def close(self) -> None:
        """Free the consoles."""
        for game in self.games.values():
            game.console.close()
        self.games.clear()


def tasks() -> list[str]:
    """Names of the stages, and `random` for another one in each episode."""
    return [*STAGES, RANDOM]


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """One stage, or all of them in random order."""
    return Mario(list(STAGES.values()) if name == RANDOM else [STAGES[name]], options)


SUITE = Suite(
    name="mario",
    about="Super Mario Bros. on an NES emulator",
    make=make,
    tasks=tasks,
    example="mario_1-1",
    needs=("nes_py", "gym_super_mario_bros"),
    install=INSTALL,
    repeat=REPEAT,
    handles=frozenset({"repeat", "size", "time_limit"}),
)
