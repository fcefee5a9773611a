"""Presets: named sets of options that stack from left to right. A user's own YAML file stacks the same way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .dreamers import PRESETS as DREAMERS
from .errors import UserError, nearest
from .options import replaced
from .schema import Config


@dataclass(frozen=True)
class Preset:
    """A line about the preset, and the options it sets by dotted name."""

    about: str
    values: dict[str, Any]


DEFAULT = ("cartpole",)
"""What `reverie train` runs when it is told nothing."""

PRESETS: dict[str, Preset] = {
    "defaults": Preset("nothing but the defaults", {}),
    "cartpole_ppo": Preset(
        "PPO on CartPole, solved in seconds",
        {
            "task": "gym_CartPole-v1",
            "run.steps": 52_000,
            "run.eval_every": 20_000,
            "run.save_every": 20_000,
            "env.reward_scale": 0.05,
            "envs.count": 3,
            "ppo.rollout": 21,
            "ppo.epochs": 20,
            "ppo.minibatch": 63,
            "ppo.lr": 4e-3,
            "ppo.lr_anneal": True,
            "ppo.clip": 0.1,
            "ppo.clip_anneal": True,
            "ppo.target_kl": 0.02,
            "ppo.gamma": 0.995,
            "ppo.lam": 0.95,
            "ppo.entropy": 0.0,
            "ppo.value_scale": 1.0,
            "ppo.grad_norm": 1.0,
            "ppo.normalize_observation": True,
            "ppo.units": 32,
            "ppo.policy_layers": 0,
        },
    ),
    "mario_ppo": Preset(
        "PPO on Super Mario Bros 1-1: 32 environments, 10M steps",
        {
            "task": "mario_1-1",
            "run.steps": 10_000_000,
            "run.eval_every": 100_000,
            "run.save_every": 100_000,
            "env.reward_scale": 0.01,
            "envs.count": 32,
            "ppo.rollout": 128,
            "ppo.epochs": 4,
            "ppo.minibatch": 256,
            "ppo.lr": 2.5e-4,
            "ppo.gamma": 0.99,
            "ppo.lam": 0.95,
            "ppo.clip": 0.2,
            "ppo.value_scale": 0.5,
            "ppo.entropy": 0.03,
            "ppo.grad_norm": 0.5,
        },
    ),
    "atari_ppo": Preset(
        "PPO on Atari: 84x84 gray, 4 frames stacked, 10M steps",
        {
            "task": "atari_pong",
            "run.steps": 10_000_000,
            "run.eval_every": 250_000,
            "run.save_every": 250_000,
            "env.size": 84,
            "env.gray": True,
            "env.stack": 4,
            "env.reward_clip": 1.0,
            "env.atari.life_loss": "terminal",
            "env.atari.fire_lives": True,
            "envs.count": 8,
            "ppo.rollout": 128,
            "ppo.epochs": 4,
            "ppo.minibatch": 256,
            "ppo.lr": 2.5e-4,
            "ppo.lr_anneal": True,
            "ppo.clip": 0.1,
            "ppo.entropy": 0.01,
        },
    ),
    "continuous_ppo": Preset(
        "PPO on MuJoCo HalfCheetah, observations and rewards normalised",
        {
            "task": "gym_HalfCheetah-v5",
            "run.steps": 1_000_000,
            "run.eval_every": 50_000,
            "run.save_every": 50_000,
            "envs.count": 8,
            "ppo.rollout": 256,
            "ppo.epochs": 10,
            "ppo.minibatch": 64,
            "ppo.lr": 3e-4,
            "ppo.lr_anneal": True,
            "ppo.entropy": 0.0,
            "ppo.normalize_observation": True,
            "ppo.normalize_reward": True,
        },
    ),
    "minatar_ppo": Preset(
        "PPO on MinAtar Breakout",
        {
            "task": "minatar_breakout",
            "run.steps": 3_000_000,
            "run.eval_every": 250_000,
            "run.save_every": 250_000,
            "envs.count": 64,
            "ppo.rollout": 64,
            "ppo.epochs": 4,
            "ppo.minibatch": 512,
            "ppo.lr": 1e-3,
            "ppo.lr_anneal": True,
            "ppo.features": 128,
            "ppo.entropy": 0.01,
        },
    ),
    "godot_ppo": Preset(
        "PPO on the rover, a game made with Godot: minutes on two CPU cores",
        {
            "task": "godot_rover",
            "run.steps": 20_000,
            "run.eval_every": 5_000,
            "run.save_every": 5_000,
            "run.eval_envs": 4,
            "envs.count": 8,
            "ppo.rollout": 128,
            "ppo.epochs": 10,
            "ppo.minibatch": 128,
            "ppo.lr": 1e-3,
            "ppo.lr_anneal": True,
            "ppo.gamma": 0.97,
            "ppo.entropy": 0.0,
            "ppo.normalize_observation": True,
            "ppo.normalize_reward": True,
        },
    ),
    **{name: Preset(about, values) for name, (about, values) in DREAMERS.items()},
    "explore": Preset("for PPO that is stuck: more entropy, smaller steps", {"ppo.entropy": 0.05, "ppo.lr": 1e-4}),
    "fast": Preset(
        "for development: 1M steps, evaluations of 5 episodes, PPO in 2 epochs",
        {"run.steps": 1_000_000, "run.eval_every": 100_000, "run.eval_episodes": 5, "ppo.epochs": 2},
    ),
    "debug": Preset(
        "a few seconds of everything, on any task",
        {
            "run.steps": 512,
            "run.eval_every": 256,
            "run.eval_episodes": 2,
            "run.eval_envs": 2,
            "run.eval_videos": 2,
            "run.save_every": 256,
            "run.threads": 1,
            "env.time_limit": 100,
            "envs.count": 4,
            "ppo.rollout": 32,
            "ppo.epochs": 2,
            "ppo.minibatch": 64,
            "world.deter": 64,
            "world.hidden": 16,
            "world.groups": 4,
            "world.classes": 4,
            "world.units": 16,
            "world.depth": 4,
            "behavior.units": 16,
            "behavior.horizon": 4,
            "explore.members": 3,
            "explore.fit": 2,
            "replay.capacity": 1000,
            "replay.batch": 4,
            "replay.length": 8,
            "replay.ratio": 4.0,
            "replay.prefill": 64,
            "replay.warmup": 128,
            "replay.pretrain": 2,
            "replay.train_every": 0,
        },
    ),
}


def guess(word: str) -> str:
    """A phrase for what a word that stands alone was meant to be."""
    if word in PRESETS or word.endswith((".yaml", ".yml")):
        return f"did you mean --configs {word}?"
    return f"did you mean --logdir {word}?" if Path(word).is_dir() else "options are written --name value"


def stacked(names: Iterable[str], base: Config | None = None, above: tuple[Path, ...] = ()) -> Config:
    """The configuration that presets make, each laid over the ones before it; `above` are files that build on them."""
    config = base or Config()
    for name in names:
        if name.endswith((".yaml", ".yml")):
            config = _from_file(Path(name), config, above)
        elif name in PRESETS:
            config = replaced(config, PRESETS[name].values)
        elif "," in name:
            config = stacked(name.split(","), config, above)
        else:
            raise UserError(f"unknown preset {name!r}: {nearest(name, PRESETS)}")
    return config


def _from_file(path: Path, base: Config, above: tuple[Path, ...]) -> Config:
    if path in above:
        raise UserError(f"{path} builds on itself by way of its 'configs': {' -> '.join(map(str, [*above, path]))}")
    values = read_yaml(path)
    below = values.pop("configs", [])
    below = [below] if isinstance(below, str) else below
    if not isinstance(below, list) or not all(isinstance(name, str) for name in below):
        raise UserError(f"{path}: 'configs' must be a list of other presets")
    base = stacked(below, base, (*above, path))
    try:
        return replaced(base, dotted(values))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        values = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise UserError(f"no preset file {path}: give the path of a YAML file with options") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} must map options to values, such as 'ppo.lr: 1e-4'")
    return values


def dotted(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping by dotted name; names may already be dotted."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= dotted(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
