"""Presets of Dreamer: its generations, sizes and tasks, as options by dotted name with a line about each."""

from __future__ import annotations

from typing import Any

Options = dict[str, Any]

COMMON: Options = {
    "agent.name": "dreamer", "world.bins": 255,
    "behavior.horizon": 15, "behavior.lam": 0.95, "behavior.starts": 0, "behavior.regularizer": "entropy",
    "behavior.entropy_end": None, "behavior.mix_end": None, "behavior.dynamics_baseline": False, "optim.lr_end": 1.0,
    "replay.recent": 0.0, "replay.prioritised": 0.0, "replay.ends": 0.0, "replay.train_every": 0,
}  # fmt: skip
"""What all generations have alike."""

V1: Options = COMMON | {
    "world.latent": "gaussian", "world.groups": 30, "world.std": "softplus", "world.min_std": 0.1,
    "world.cell": "plain", "world.deter": 200, "world.hidden": 200, "world.units": 400, "world.depth": 32,
    "world.norm": "none", "world.activation": "elu", "world.init": "glorot", "world.initial": "zeros",
    "world.prior_layers": 1, "world.posterior_layers": 1, "world.cnn": "valid",
    "world.cnn_activation": "relu", "world.layers": 3, "world.symlog": False,
    "world.reward_head": "normal", "world.reward_layers": 2, "world.reward_target": "raw",
    "world.cont_head": True, "world.cont_layers": 3, "world.cont_discounted": True, "world.cont_scale": 10.0,
    "world.recon_scale": 0.5, "world.dyn_scale": 1.0, "world.rep_scale": 1.0,
    "world.free_nats": 3.0, "world.free_mean": True,
    "behavior.units": 400, "behavior.actor_layers": 4, "behavior.critic_layers": 3, "behavior.actor_scale": 1.0,
    "behavior.critic_head": "normal", "behavior.continuous": "tanh_normal", "behavior.unimix": 0.0,
    "behavior.gradient": "dynamics", "behavior.entropy": 0.0, "behavior.noise": 0.3, "behavior.epsilon": 0.1,
    "behavior.arrival": True, "behavior.train_start": False, "behavior.true_start": False,
    "behavior.slow": "none", "behavior.slow_target": False, "behavior.slow_scale": 0.0,
    "behavior.return_norm": False, "behavior.replay_scale": 0.0, "behavior.gamma": 0.99,
    "replay.batch": 50, "replay.length": 50, "replay.start": "zeros", "replay.ratio": 500.0,
    "replay.prefill": 2500, "replay.warmup": 2500, "replay.pretrain": 100,
    "replay.uniform": 1.0, "replay.online": 0.0,
}  # fmt: skip
"""The first Dreamer: Gaussian latents, gradients through the dynamics, noise on the actions."""

V2: Options = COMMON | {
    "world.latent": "categorical", "world.groups": 32, "world.classes": 32, "world.unimix": 0.0,
    "world.std": "sigmoid", "world.min_std": 0.1, "world.gate_bias": True,
    "world.cell": "norm", "world.deter": 1024, "world.hidden": 1024, "world.units": 400, "world.depth": 48,
    "world.norm": "none", "world.activation": "elu", "world.init": "glorot", "world.initial": "zeros",
    "world.prior_layers": 1, "world.posterior_layers": 1, "world.cnn": "valid",
    "world.cnn_activation": "same", "world.layers": 4, "world.symlog": False,
    "world.reward_head": "normal", "world.reward_layers": 4, "world.reward_target": "raw",
    "world.cont_head": True, "world.cont_layers": 4, "world.cont_discounted": True, "world.cont_scale": 1.0,
    "world.recon_scale": 0.5, "world.dyn_scale": 0.8, "world.rep_scale": 0.2,
    "world.free_nats": 0.0, "world.free_mean": True,
    "behavior.units": 400, "behavior.actor_layers": 4, "behavior.critic_layers": 4, "behavior.actor_scale": 1.0,
    "behavior.critic_head": "normal", "behavior.continuous": "truncated_normal", "behavior.unimix": 0.0,
    "behavior.gradient": "auto", "behavior.entropy": 2e-3, "behavior.noise": 0.0, "behavior.epsilon": 0.0,
    "behavior.arrival": True, "behavior.train_start": True, "behavior.true_start": True,
    "behavior.slow": "copy", "behavior.slow_every": 100, "behavior.slow_target": True, "behavior.slow_scale": 0.0,
    "behavior.return_norm": False, "behavior.replay_scale": 0.0, "behavior.gamma": 0.99,
    "replay.batch": 16, "replay.length": 50, "replay.start": "zeros", "replay.ratio": 160.0,
    "replay.prefill": 10_000, "replay.warmup": 10_000, "replay.pretrain": 1,
    "replay.uniform": 1.0, "replay.online": 0.0,
}  # fmt: skip
"""The second Dreamer: categorical latents, KL balance, a target critic, REINFORCE for discrete actions."""

V3_2023: Options = COMMON | {
    "world.latent": "categorical", "world.groups": 32, "world.classes": 32, "world.unimix": 0.01,
    "world.cell": "norm", "world.deter": 512, "world.hidden": 512, "world.units": 512, "world.depth": 32,
    "world.norm": "layer", "world.activation": "silu", "world.init": "fan_avg", "world.initial": "learned",
    "world.prior_layers": 1, "world.posterior_layers": 1, "world.cnn": "stride",
    "world.cnn_activation": "same", "world.layers": 2, "world.symlog": True,
    "world.reward_head": "symlog_twohot", "world.reward_layers": 2, "world.reward_target": "raw",
    "world.cont_head": True, "world.cont_layers": 2, "world.cont_discounted": False, "world.cont_scale": 1.0,
    "world.recon_scale": 1.0, "world.dyn_scale": 0.5, "world.rep_scale": 0.1,
    "world.free_nats": 1.0, "world.free_mean": False,
    "behavior.units": 512, "behavior.actor_layers": 2, "behavior.critic_layers": 2, "behavior.actor_scale": 1.0,
    "behavior.critic_head": "symlog_twohot", "behavior.continuous": "bounded_normal", "behavior.unimix": 0.01,
    "behavior.gradient": "auto", "behavior.dynamics_baseline": True, "behavior.entropy": 3e-4,
    "behavior.noise": 0.0, "behavior.epsilon": 0.0,
    "behavior.arrival": False, "behavior.train_start": True, "behavior.true_start": True,
    "behavior.slow": "average", "behavior.slow_target": False, "behavior.slow_scale": 1.0,
    "behavior.return_norm": True, "behavior.replay_scale": 0.0, "behavior.gamma": 1 - 1 / 333,
    "replay.batch": 16, "replay.length": 64, "replay.start": "zeros", "replay.ratio": 512.0,
    "replay.prefill": 0, "replay.warmup": 1024, "replay.pretrain": 0,
    "replay.uniform": 1.0, "replay.online": 0.0,
}  # fmt: skip
"""The third Dreamer as first published, in its small size."""

V3: Options = COMMON | {
    "world.latent": "categorical", "world.unimix": 0.01, "world.cell": "block",
    "world.norm": "rms", "world.activation": "silu", "world.init": "fan_in", "world.initial": "zeros",
    "world.prior_layers": 2, "world.posterior_layers": 1, "world.cnn": "pool",
    "world.cnn_activation": "same", "world.layers": 3, "world.symlog": True,
    "world.reward_head": "symexp_twohot", "world.reward_layers": 1, "world.reward_target": "raw",
    "world.cont_head": True, "world.cont_layers": 1, "world.cont_discounted": True, "world.cont_scale": 1.0,
    "world.recon_scale": 1.0, "world.dyn_scale": 1.0, "world.rep_scale": 0.1,
    "world.free_nats": 1.0, "world.free_mean": False,
    "behavior.actor_layers": 3, "behavior.critic_layers": 3, "behavior.actor_scale": 0.01,
    "behavior.critic_head": "symexp_twohot", "behavior.continuous": "bounded_normal", "behavior.unimix": 0.01,
    "behavior.gradient": "reinforce", "behavior.entropy": 3e-4, "behavior.noise": 0.0, "behavior.epsilon": 0.0,
    "behavior.arrival": False, "behavior.train_start": True, "behavior.true_start": False,
    "behavior.slow": "average", "behavior.slow_target": False, "behavior.slow_scale": 1.0,
    "behavior.return_norm": True, "behavior.replay_scale": 0.3, "behavior.gamma": 1 - 1 / 333,
    "replay.batch": 16, "replay.length": 64, "replay.start": "stored", "replay.ratio": 32.0,
    "replay.prefill": 0, "replay.warmup": 1024, "replay.pretrain": 0,
    "replay.uniform": 0.0, "replay.online": 1.0,
}  # fmt: skip
"""The third Dreamer in its newest form."""


def adam(
    lrs: tuple[float, float, float], eps: tuple[float, float, float], clips: tuple[float, float, float]
) -> Options:
    """Three Adams, for model, actor and critic."""
    found: Options = {"optim.joint": False}
    for name, lr, each, clip in zip(("model", "actor", "critic"), lrs, eps, clips):
        values = {"kind": "adam", "lr": lr, "eps": each, "clip": clip, "agc": 0.0, "decay": 0.0, "warmup": 0}
        found |= {f"optim.{name}.{option}": value for option, value in values.items()}
    return found


def laprop(lr: float) -> Options:
    """One LaProp for everything."""
    values = {"kind": "laprop", "lr": lr, "eps": 1e-20, "clip": 0.0, "agc": 0.3, "decay": 0.0, "warmup": 1000}
    return {"optim.joint": True} | {f"optim.model.{option}": value for option, value in values.items()}


def sized(unit: int) -> Options:
    """A published size of the newest form: all widths are multiples of the channels."""
    return {
        "world.deter": 128 * unit, "world.hidden": 16 * unit, "world.groups": 32, "world.classes": max(4, unit),
        "world.units": 16 * unit, "world.depth": unit, "behavior.units": 16 * unit,
    }  # fmt: skip


DECAY: Options = {f"optim.{name}.decay": 1e-6 for name in ("model", "actor", "critic")}
SIZES = {"1m": 4, "12m": 16, "25m": 24, "50m": 32, "100m": 48, "200m": 64, "400m": 96}

GENERATIONS: dict[str, tuple[str, Options]] = {
    "dreamer_v1": (
        "Dreamer V1: Gaussian latents, actor learned through the dynamics",
        V1 | adam((6e-4, 8e-5, 8e-5), (1e-7,) * 3, (100.0,) * 3),
    ),
    "dreamer_v2": (
        "Dreamer V2: categorical latents, KL balance, target critic",
        V2 | adam((1e-4, 8e-5, 2e-4), (1e-5,) * 3, (100.0,) * 3) | DECAY,
    ),
    "dreamer_v3_2023": (
        "Dreamer V3 as first published, small",
        V3_2023 | adam((1e-4, 3e-5, 3e-5), (1e-8, 1e-5, 1e-5), (1000.0, 100.0, 100.0)),
    ),
    "dreamer_v3": ("Dreamer V3 in its newest form, 12m", V3 | laprop(4e-5) | sized(16)),
}

NEWEST = GENERATIONS["dreamer_v3"][1]

SMALL: Options = {
    "run.threads": 1, "log.every": 100, "envs.count": 4,
    "world.cell": "norm", "world.norm": "layer", "world.deter": 128, "world.hidden": 64, "world.groups": 8,
    "world.classes": 8, "world.units": 64, "world.prior_layers": 1, "world.layers": 2, "world.bins": 63,
    "behavior.units": 64, "behavior.actor_layers": 2, "behavior.critic_layers": 2, "behavior.horizon": 12,
    "behavior.starts": 8,
    "replay.batch": 16, "replay.length": 16, "replay.ratio": 64.0, "replay.capacity": 100_000,
    "optim.model.lr": 1e-3, "optim.model.warmup": 100, "optim.lr_end": 0.1,
}  # fmt: skip
"""Networks that a single CPU core goes through a dozen times a second, for tasks of a few numbers."""

TASKS: dict[str, tuple[str, Options]] = {
    "cartpole": (
        "a small Dreamer V3 on CartPole, minutes on two CPU cores",
        NEWEST
        | SMALL
        | {
            "task": "gym_CartPole-v1", "run.steps": 10_000, "run.eval_every": 1_000, "run.save_every": 2_500,
            "run.eval_episodes": 20, "run.eval_envs": 20, "run.goal": 475.0,
            "world.deter": 64, "behavior.gamma": 0.99, "behavior.horizon": 15, "behavior.entropy": 1e-2,
            "replay.ratio": 96.0,
        },
    ),
    "pendulum": (
        "a small Dreamer V3 on Pendulum, minutes on two CPU cores",
        NEWEST
        | SMALL
        | {
            "task": "gym_Pendulum-v1", "run.steps": 20_000, "run.eval_every": 2_500, "run.save_every": 2_500,
        },
    ),
    "corridor": (
        "a small Dreamer V3 on a toy whose reward no random policy finds; add plan2explore",
        NEWEST
        | SMALL
        | {
            "task": "toy_corridor", "run.steps": 8_000, "run.eval_every": 500, "run.save_every": 2_500,
            "run.eval_episodes": 4, "run.eval_envs": 4, "run.eval_videos": 0, "run.goal": 24.0,
            "world.deter": 64, "behavior.gamma": 0.99, "behavior.horizon": 8, "behavior.entropy": 3e-2,
            "behavior.starts": 4, "replay.batch": 32, "replay.length": 8, "replay.ratio": 128.0, "replay.warmup": 512,
            "optim.lr_end": 1.0,
        },
    ),
    "godot": (
        "a small Dreamer V3 on the rover, a game made with Godot: minutes on two CPU cores",
        NEWEST
        | SMALL
        | {
            "task": "godot_rover", "run.steps": 15_000, "run.eval_every": 2_500, "run.save_every": 2_500,
            "run.eval_envs": 4, "env.reward_scale": 10.0, "world.recon_scale": 10.0, "behavior.gamma": 0.97,
        },
    ),
    "atari": (
        "Dreamer V3 on Atari: 64x64 colour, sticky actions, all 18 actions, 50M steps",
        NEWEST
        | {
            "task": "atari_pong", "run.steps": 50_000_000, "run.eval_every": 1_000_000, "run.save_every": 100_000,
            "run.eval_stochastic": True, "env.size": 64, "env.gray": False, "env.atari.sticky": 0.25,
            "env.atari.all_actions": True, "envs.count": 16, "replay.ratio": 32.0,
        },
    ),
    "atari100k": (
        "Dreamer V3 on 100,000 steps of Atari (400K frames)",
        NEWEST
        | {
            "task": "atari_pong", "run.steps": 100_000, "run.eval_every": 25_000, "run.save_every": 10_000,
            "run.eval_stochastic": True, "env.size": 64, "env.gray": False, "envs.count": 1, "replay.ratio": 256.0,
            "replay.capacity": 100_000,
        },
    ),
    "dmc_proprio": (
        "Dreamer V3 on DeepMind Control from joint positions, 250,000 steps (500K frames)",
        NEWEST
        | {
            "task": "dmc_walker_walk", "run.steps": 250_000, "run.eval_every": 25_000, "run.save_every": 25_000,
            "env.repeat": 2, "env.dmc.observation": "proprio", "envs.count": 16, "replay.ratio": 256.0,
            "replay.capacity": 250_000,
        },
    ),
    "dmc_vision": (
        "Dreamer V3 on DeepMind Control from images, 500,000 steps (1M frames)",
        NEWEST
        | {
            "task": "dmc_walker_walk", "run.steps": 500_000, "run.eval_every": 50_000, "run.save_every": 50_000,
            "env.repeat": 2, "env.size": 64, "env.dmc.observation": "vision", "envs.count": 8, "replay.ratio": 512.0,
            "replay.capacity": 500_000,
        },
    ),
    "crafter": (
        "Dreamer V3 on Crafter, 1M steps",
        NEWEST
        | {
            "task": "crafter_reward", "run.steps": 1_000_000, "run.eval_every": 100_000, "run.save_every": 50_000,
            "env.size": 64, "envs.count": 1, "replay.ratio": 512.0,
        },
    ),
    "minigrid": (
        "Dreamer V3 on MiniGrid, 1M steps",
        NEWEST
        | sized(4)
        | {
            "task": "minigrid_DoorKey-5x5-v0", "run.steps": 1_000_000, "run.eval_every": 50_000,
            "run.save_every": 50_000, "envs.count": 8, "replay.ratio": 64.0,
        },
    ),
    "mario_dreamer": (
        "Dreamer V3 on Super Mario Bros 1-1, 2M steps",
        NEWEST
        | {
            "task": "mario_1-1", "run.steps": 2_000_000, "run.eval_every": 100_000, "run.save_every": 100_000,
            "envs.count": 16, "replay.ratio": 32.0,
        },
    ),
}  # fmt: skip

EXPLORERS: dict[str, tuple[str, Options]] = {
    "plan2explore": (
        "for any Dreamer: a second behaviour explores, where the world model has something to learn",
        {"explore.intrinsic": 1.0, "explore.extrinsic": 0.0, "explore.task": True, "explore.fit": 0},
    ),
    "zero_shot": (
        "for any Dreamer: explore without rewards, then fit reward and behaviour to the replay",
        {"explore.intrinsic": 1.0, "explore.extrinsic": 0.0, "explore.task": False, "explore.fit": 2_000},
    ),
}

PRESETS: dict[str, tuple[str, Options]] = {
    **GENERATIONS,
    **EXPLORERS,
    **{name: (f"the published size of {name.upper()} weights", sized(unit)) for name, unit in SIZES.items()},
    **TASKS,
}
