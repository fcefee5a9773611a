"""Atari games of the Arcade Learning Environment, alone or as ALE's own multi-threaded vector environment.

Both follow one protocol and show the same images: idle frames and FIRE at the start, each action repeated, the maximum
of the last two raw frames taken before resizing, older images of a fresh stack black. Rewards are never clipped here.
Games that wait for FIRE after a lost life too (Breakout) leave that to the agent unless `env.atari.fire_lives` is set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import reduce
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ...config.schema import EnvConfig
from ..images import AreaResize
from ..process import core_count
from ..registry import Suite, extra
from .ale import REPEAT, Protocol, protocol, rom_path

ENDLESS = 2**31 - 1
SEEDS = 2**31 - 1
"""ALE keeps seeds as signed 32-bit numbers."""


class AtariGame(gymnasium.Env):
    """One game as a Gymnasium environment with image observations (h, w, c)."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}
    render_mode = "rgb_array"

    def __init__(self, name: str, rules: Protocol) -> None:
        import ale_py

        self.rules = rules
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)  # stickiness is played here, from the environment's seed
        self.ale.loadROM(rom_path(name))
        self.switched_on = self.ale.cloneState(include_rng=True)
        self.actions = self.ale.getLegalActionSet() if rules.game.all_actions else self.ale.getMinimalActionSet()
        self.noop, self.fire = ale_py.Action.NOOP, ale_py.Action.FIRE
        self.fires = rules.game.fire_reset and self.fire in self.actions
        self.refires = rules.game.fire_lives and self.fire in self.actions
        height, width = self.ale.getScreenDims()
        self.resize = AreaResize(height, width, rules.size)
        self.images: deque[np.ndarray] = deque(maxlen=rules.stack)
        self.action_space = Discrete(len(self.actions))
        self.observation_space = rules.space
        self.steps = 0

    def get_action_meanings(self) -> list[str]:
        """The actions in ALE's words."""
        return [action.name for action in self.actions]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The first observation of a new episode.

        Resetting alone would let some games go on from what they did before, and loading the ROM again takes ten times
        as long as going back to the console just switched on.
        """
        super().reset(seed=seed)
        self.ale.restoreState(self.switched_on)
        self.ale.reset_game()
        for _ in range(self.idle_frames()):
            self.ale.act(self.noop)
            if self.ale.game_over(with_truncation=False):
                self.ale.reset_game()
        if self.fires:
            self.ale.act(self.fire)
        self.steps, self.lives, self.held, self.waits = 0, self.ale.lives(), self.noop, False
        image = self.resize(self.screen())
        self.images.extend(np.zeros_like(image) for _ in range(self.rules.stack))
        return self.observation(image), {"lives": self.lives, "life_lost": False}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """What Gymnasium asks for; the frames after the end of a game are not played."""
        reward, over = 0.0, False
        screens: list[np.ndarray] = []
        for frame in range(self.rules.repeat):
            if not self.sticks():
                self.held = self.fire if self.waits else self.actions[int(action)]
            reward += self.ale.act(self.held)
            over = self.ale.game_over(with_truncation=False)
            if over or frame >= self.rules.repeat - 2:
                screens.append(self.screen())
            if over:
                break
        self.steps += 1
        lives, self.lives = self.lives, self.ale.lives()
        self.waits = self.refires and self.lives < lives and not over
        lost = self.rules.marks_lives and self.lives < lives and not over
        observation = self.observation(self.resize(reduce(np.maximum, screens)))
        return observation, reward, over, self.steps == self.rules.limit, {"lives": self.lives, "life_lost": lost}

    def render(self) -> np.ndarray:
        """The screen in colour and full size."""
        return self.ale.getScreenRGB()

    def idle_frames(self) -> int:
        """A random number of frames to wait; FIRE takes the place of one, as in ALE's vector environment."""
        return int(self.np_random.integers(max(self.rules.game.noops, 1))) - int(self.fires)

    def sticks(self) -> bool:
        """Whether the emulator ignores the agent for one frame and goes on with the last action."""
        return self.rules.game.sticky > 0 and bool(self.np_random.random() < self.rules.game.sticky)

    def screen(self) -> np.ndarray:
        """The raw screen (h, w, c) as the agent sees its colours."""
        return self.ale.getScreenGrayscale()[..., None] if self.rules.gray else self.ale.getScreenRGB()

    def observation(self, image: np.ndarray) -> np.ndarray:
        """The stack of images along the channels, oldest first, after adding one."""
        self.images.append(image)
        return image if self.rules.stack == 1 else np.concatenate(self.images, -1)


class AtariVector(VectorEnv):
    """ALE's vector environment with Dict observations (N, h, w, c) and lost lives marked.

    Between `step_async` and `step_wait` the games run in ALE's own threads while the caller does something else.
    """

    def __init__(self, name: str, rules: Protocol, count: int) -> None:
        from ale_py.vector_env import AtariVectorEnv

        self.rules = rules
        self.native: Any = AtariVectorEnv(
            name,
            count,
            num_threads=min(count, core_count()),
            max_num_frames_per_episode=min(rules.limit * rules.repeat, ENDLESS) or ENDLESS,
            repeat_action_probability=rules.game.sticky,
            full_action_space=rules.game.all_actions,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            img_height=rules.size,
            img_width=rules.size,
            grayscale=rules.gray,
            stack_num=rules.stack,
            frameskip=rules.repeat,
            noop_max=rules.game.noops,
            reward_clipping=False,
            use_fire_reset=rules.game.fire_reset,
        )
        self.num_envs = count
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = Dict({"image": rules.space})
        self.single_action_space = self.native.single_action_space
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self.lives = np.zeros(count, np.int32)
        self.done = np.zeros(count, bool)
        self.waits = np.zeros(count, bool)
        self.fire = fire_number(name, rules.game.all_actions) if rules.game.fire_lives else None

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The first observations; one seed is spread over the environments as seed, seed + 1, ..."""
        seeds = np.arange(seed, seed + self.num_envs) if isinstance(seed, int | np.integer) else seed
        images, info = self.native.reset(seed=None if seeds is None else np.asarray(seeds) % SEEDS)
        fresh = self.infos(info["lives"], np.ones(self.num_envs, bool))
        self.done = np.zeros(self.num_envs, bool)
        return {"image": channels_last(images)}, fresh

    def step(
        self, actions: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """What Gymnasium asks for; the step after an end shows the first observation of the next episode."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: np.ndarray) -> None:
        """Let the games run with these actions."""
        actions = np.asarray(actions, np.int64)
        self.native.send(actions if self.fire is None else np.where(self.waits, self.fire, actions))

    def step_wait(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """What `step` returns, once all games have made their step."""
        images, rewards, terminated, truncated, info = self.native.recv()
        infos = self.infos(info["lives"], self.done | terminated)
        self.done = terminated | truncated
        return {"image": channels_last(images)}, rewards.astype(np.float64), terminated, truncated, infos

    def infos(self, lives: np.ndarray, exempt: np.ndarray) -> dict[str, Any]:
        """Information about each environment; no life counts as lost where an episode has just begun or ended."""
        fewer = (lives < self.lives) & ~exempt
        lost = fewer & self.rules.marks_lives
        self.lives, self.waits = lives, fewer
        return {
            "lives": lives,
            "life_lost": lost,
            "broken": np.zeros(self.num_envs, bool),
            "summary": [{} for _ in range(self.num_envs)],
        }

    def close_extras(self, **kwargs: Any) -> None:
        """Stop ALE's threads, which end with the object that owns them."""
        self.native = None


def channels_last(images: np.ndarray) -> np.ndarray:
    """Images (N, stack, h, w) or (N, stack, h, w, 3) as (N, h, w, c), without a copy unless colours are stacked."""
    if images.ndim == 4:
        return images.transpose(0, 2, 3, 1)
    if images.shape[1] == 1:
        return images[:, 0]
    return images.transpose(0, 2, 3, 1, 4).reshape(len(images), *images.shape[2:4], -1)


def fire_number(name: str, all_actions: bool) -> int | None:
    """The number of the action FIRE in a game; None where there is none."""
    import ale_py

    ale = ale_py.ALEInterface()
    ale.loadROM(rom_path(name))
    actions = list(ale.getLegalActionSet() if all_actions else ale.getMinimalActionSet())
    return actions.index(ale_py.Action.FIRE) if ale_py.Action.FIRE in actions else None


def tasks() -> list[str]:
    """Names of the games in snake case. ALE ends the process over a ROM it has no rules for, so those are left out."""
    from ale_py import ALEInterface, roms

    return sorted(name for name in roms.get_all_rom_ids() if ALEInterface.isSupportedROM(rom_path(name)))


def make(name: str, options: EnvConfig, training: bool) -> gymnasium.Env:
    """One game."""
    return AtariGame(name, protocol(options, training))


def make_vector(name: str, options: EnvConfig, count: int, training: bool) -> VectorEnv:
    """Many copies of one game in ALE's threads."""
    return AtariVector(name, protocol(options, training), count)


SUITE = Suite(
    name="atari",
    about="Atari 2600 games of the Arcade Learning Environment",
    make=make,
    tasks=tasks,
    example="atari_pong",
    needs=("ale_py",),
    install=extra("atari"),
    repeat=REPEAT,
    handles=frozenset({"repeat", "size", "gray", "stack", "time_limit"}),
    make_vector=make_vector,
)
