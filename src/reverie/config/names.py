"""Short names of common options, as other projects' commands spell them."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

from .errors import UserError
from .options import convert

LOG = logging.getLogger("reverie")

SHORT: dict[str, str] = {
    "num_envs": "envs.count",
    "steps": "run.steps",
    "total_timesteps": "run.steps",
    "eval_every": "run.eval_every",
    "eval_episodes": "run.eval_episodes",
    "action_repeat": "env.repeat",
    "time_limit": "env.time_limit",
    "env_id": "task",
    "generators": "collect.generators",
}
"""Short name -> dotted name, whatever the agent."""

LEARNING: dict[str, dict[str, str]] = {
    "ppo": {
        "batch_size": "ppo.minibatch",
        "minibatch_size": "ppo.minibatch",
        "learning_rate": "ppo.lr",
        "lr": "ppo.lr",
        "gamma": "ppo.gamma",
        "discount": "ppo.gamma",
        "gae_lambda": "ppo.lam",
        "clip_coef": "ppo.clip",
        "vf_coef": "ppo.value_scale",
        "ent_coef": "ppo.entropy",
        "max_grad_norm": "ppo.grad_norm",
        "target_kl": "ppo.target_kl",
        "feature_dim": "ppo.features",
        "num_steps": "ppo.rollout",
        "update_epochs": "ppo.epochs",
    },
    "dreamer": {
        "batch_size": "replay.batch",
        "batch_length": "replay.length",
        "train_ratio": "replay.ratio",
        "buffer_size": "replay.capacity",
        "prefill": "replay.prefill",
        "pretrain": "replay.pretrain",
        "learning_rate": "optim.model.lr",
        "lr": "optim.model.lr",
        "model_lr": "optim.model.lr",
        "actor_lr": "optim.actor.lr",
        "critic_lr": "optim.critic.lr",
        "value_lr": "optim.critic.lr",
        "gamma": "behavior.gamma",
        "discount": "behavior.gamma",
        "gae_lambda": "behavior.lam",
        "discount_lambda": "behavior.lam",
        "ent_coef": "behavior.entropy",
        "horizon": "behavior.horizon",
        "imag_horizon": "behavior.horizon",
        "explore_until": "explore.until",
    },
}
"""Agent -> short name -> dotted name. A Dreamer with three optimisers has no one learning rate: `learning_rate` is the
world model's, as the name of the option says, and actor and critic keep theirs."""


ON_POLICY = "ppo_on_policy"
SWITCH = {"true": "on_policy_ppo", "false": "imagined"}
"""What `--ppo_on_policy` may be -> `agent.policy`."""


def meanings() -> dict[str, dict[str, str]]:
    """Short name -> agent -> dotted name, of those whose meaning the agent decides."""
    found: dict[str, dict[str, str]] = {}
    for agent, words in LEARNING.items():
        for word, name in words.items():
            found.setdefault(word, {})[agent] = name
    return found


def spelled_out(values: dict[str, Any], agent: str) -> dict[str, Any]:
    """The values with every short name as the dotted one it means for that agent, PPO unless it has its own."""
    mine, known = LEARNING.get(agent, LEARNING["ppo"]), meanings()
    if ON_POLICY in values:
        values = with_policy(values, agent)
    for word in values:
        if word in known and word not in mine:
            (other, name), *_ = known[word].items()
            raise UserError(f"--{word} means nothing to the agent {agent}: it is --{name} of {other}")
    return {mine.get(word, word): value for word, value in values.items()}


def with_policy(values: dict[str, Any], agent: str) -> dict[str, Any]:
    """The values with the switch between imagination and PPO as the option it stands for."""
    if agent != "dreamer":
        raise UserError(f"--{ON_POLICY} is for a world model, but the agent is {agent}: add --configs dreamer_v3")
    found: dict[str, Any] = {}
    for name, value in values.items():  # in order, since of two names for one option the last counts
        if name == ON_POLICY:
            name, value = "agent.policy", SWITCH[str(convert(ON_POLICY, value, bool)).lower()]
        found.pop(name, None)
        found[name] = value
    return found


def place_of(target: Any) -> str:
    """`module:Class` of a class or function, by which a run and its workers find it again."""
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", "")
    if not module or not name.isidentifier():
        raise UserError(f"task={target!r} cannot be found by a name: define a class or function at the top of a module")
    if module == "__main__":
        module = share_program()
    if module == "__main__":
        LOG.warning("%s is defined in no file, so this program alone can use the run: put it into a module", name)
    return f"{module}:{name}"


def share_program() -> str:
    """Let the running program be imported as others would, and say as what; `__main__` where it is no file."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), Path(getattr(main, "__file__", None) or "")
    name = spec.name if spec else file.stem if file.is_file() else "__main__"
    sys.modules.setdefault(name, main)  # this process must not run it a second time
    return str(name)


def check_guard(task: str) -> None:
    """Refuse to train while the task's own module is imported: by `reverie eval`, say, or by a worker of that run."""
    module, colon, _ = task.partition(":")
    spec = getattr(sys.modules.get(module), "__spec__", None)
    if colon and getattr(spec, "_initializing", False):  # which Python sets while it runs a module's lines
        place = 'under if __name__ == "__main__":, or in a function'
        raise UserError(f"{module} trains whenever it is imported: let it do so {place}")


def task_of(env_id: str) -> str:
    """Our name of a task that others write as an environment id: `Atari-Pong`, `PongNoFrameskip-v4`, `CartPole-v1`."""
    prefix, dash, rest = env_id.partition("-")
    game = rest if dash and prefix.lower() == "atari" else prefix.removesuffix("NoFrameskip")
    if game != prefix:
        return "atari_" + re.sub(r"(?<!^)(?=[A-Z])", "_", game).lower()
    if dash and prefix == "MiniGrid":
        return f"minigrid_{rest}"
    if dash and prefix.lower() == "dmc":
        return f"dmc_{rest.lower().replace('-', '_')}"
    if ":" in env_id or re.match(r"[a-z]+_", env_id):
        return env_id
    return f"gym_{env_id}"
