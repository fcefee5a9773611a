"""Short names of common options, as other projects' commands spell them."""

from __future__ import annotations

import re

SHORT: dict[str, str] = {
    "batch_size": "ppo.minibatch",
    "minibatch_size": "ppo.minibatch",
    "learning_rate": "ppo.lr",
    "lr": "ppo.lr",
    "gamma": "ppo.gamma",
    "gae_lambda": "ppo.lam",
    "clip_coef": "ppo.clip",
    "vf_coef": "ppo.value_scale",
    "ent_coef": "ppo.entropy",
    "max_grad_norm": "ppo.grad_norm",
    "target_kl": "ppo.target_kl",
    "num_steps": "ppo.rollout",
    "update_epochs": "ppo.epochs",
    "num_envs": "envs.count",
    "steps": "run.steps",
    "total_timesteps": "run.steps",
    "eval_every": "run.eval_every",
    "eval_episodes": "run.eval_episodes",
    "action_repeat": "env.repeat",
    "time_limit": "env.time_limit",
    "env_id": "task",
}
"""Short name -> dotted name."""


def task_of(env_id: str) -> str:
    """Our name of a task that another project writes as an environment id: `Atari-Pong`, `CartPole-v1`."""
    prefix, dash, rest = env_id.partition("-")
    if dash and prefix.lower() == "atari":
        return "atari_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", rest).lower()
    if dash and prefix == "MiniGrid":
        return f"minigrid_{rest}"
    if dash and prefix.lower() == "dmc":
        return f"dmc_{rest.lower().replace('-', '_')}"
    if ":" in env_id or re.match(r"[a-z]+_", env_id):
        return env_id
    return f"gym_{env_id}"
