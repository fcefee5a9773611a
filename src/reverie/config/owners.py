"""Which agent an option belongs to; what is set for another one does nothing, and that is said."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from .errors import UserError
from .options import options
from .presets import PRESETS, dotted, read_yaml
from .schema import Config, EnvConfig
from .uses import unused

LOG = logging.getLogger("reverie")

OWNERS = {"ppo": "ppo", **dict.fromkeys(("world", "behavior", "explore", "optim", "replay"), "dreamer")}
"""Group of options -> the agent they are for; the other groups are for all."""


NETS = ("ppo.cnn", "ppo.features", "ppo.units", "ppo.layers", "ppo.policy_layers", "ppo.activation", "ppo.log_std",
        "ppo.precision", "ppo.value_clip", "ppo.normalize_observation", "ppo.normalize_reward")  # fmt: skip
"""Options of PPO that its own agent alone uses."""
DREAMT = ("behavior.entropy", "behavior.regularizer", "behavior.replay_scale", "behavior.gradient", "behavior.mix",
          "behavior.arrival", "behavior.train_start", "behavior.true_start", "behavior.return_",
          "behavior.dynamics_baseline", "optim.joint", "optim.actor.", "optim.critic.")  # fmt: skip
"""Beginnings of options of how a Dreamer's actor and critic learn unless they do so by PPO."""
IDLE: dict[str, tuple[str, ...]] = {
    "imagined": (),
    "imagined_ppo": (*NETS, *DREAMT, "ppo.gamma", "ppo.lam", "ppo.target_kl", "ppo.rollout", "behavior.slow_scale"),
    "on_policy_ppo": (*NETS, *DREAMT, "behavior.lam", "behavior.horizon", "behavior.starts", "behavior.noise",
                      "behavior.epsilon", "behavior.slow"),
}  # fmt: skip
"""How a Dreamer's policy learns -> beginnings of options that then do nothing."""


def owner(name: str) -> str | None:
    """The agent that an option is for; None if it is for all."""
    return OWNERS.get(name.partition(".")[0])


def check_presets(names: Iterable[str], config: Config) -> None:
    """Refuse a preset that sets nothing but options of another agent than the run's."""
    for name in names:
        if name in PRESETS:
            _check(name, PRESETS[name].values, config)
        elif name.endswith((".yaml", ".yml")):
            values = read_yaml(Path(name))
            below = values.pop("configs", [])
            check_presets([below] if isinstance(below, str) else below, config)
            _check(name, () if below else dotted(values), config)
        elif "," in name:
            check_presets(name.split(","), config)


def _check(name: str, values: Iterable[str], config: Config) -> None:
    owners, agent = {owner(each) for each in values}, config.agent.name
    used = {None, agent} | ({"ppo"} if uses_ppo(config) else set())
    if owners and not owners & used and agent in OWNERS.values():
        other = " and ".join(sorted(filter(None, owners)))
        raise UserError(f"preset {name!r} does nothing for the agent {agent}: it sets options of {other} alone")


def warn_of_idle(values: Iterable[str], config: Config, others: Iterable[Config] = ()) -> None:
    """Say which of the options given one by one the run does not use; if there are others, neither does any of them."""
    warn_of_other_suites(values, config.task)
    for name in values:
        if (reason := idle(name, config)) and all(idle(name, other) for other in others):
            LOG.warning("--%s does nothing here: %s", name, reason)


def warn_of_unused(presets: Iterable[str], given: Iterable[str], config: Config) -> None:
    """Say which options of users' own preset files do nothing beside the Dreamer's others, if not yet said.

    A file may be for several agents and suites, so what it has for those is not pointed out.
    """
    if config.agent.name == "dreamer":
        for name, file in set_in_files(presets).items():
            if name not in given and (reason := unused(name, config)):
                LOG.warning("%s in %s does nothing here: %s", name, file, reason)


def set_in_files(presets: Iterable[str]) -> dict[str, str]:
    """Options that preset files set -> the last file that does so. One that sets most of them only records a run."""
    found: dict[str, str] = {}
    for name in presets:
        if name.endswith((".yaml", ".yml")):
            values = read_yaml(Path(name))
            below = values.pop("configs", [])
            found |= set_in_files([below] if isinstance(below, str) else below)
            mine = dotted(values)
            recorded = len(options().keys() & mine.keys()) > len(options()) // 2  # some may be newer than the run
            found |= {} if recorded else dict.fromkeys(mine, name)
        elif "," in name and name not in PRESETS:
            found |= set_in_files(name.split(","))
    return found


def idle(name: str, config: Config) -> str:
    """Why a run does not use an option; empty if it does."""
    agent, policy = config.agent.name, config.agent.policy
    if config.collect.mode == "inline" and name.startswith("collect.") and name != "collect.mode":
        return "there are no generators (--collect.mode process starts some)"
    if agent == "dreamer" and name.startswith(IDLE[policy]):
        return f"the policy is {policy}"
    if uses_ppo(config) and name.startswith("ppo."):
        return ""
    if agent in OWNERS.values() and owner(name) not in (None, agent):
        return f"the agent is {agent}, not {owner(name)}"
    return unused(name, config) if agent == "dreamer" else ""


def warn_of_other_suites(values: Iterable[str], task: str) -> None:
    """Say which of the options given one by one are for tasks of another suite."""
    for name in values:
        group, _, rest = name.removeprefix("env.").partition(".")
        if name.startswith("env.") and rest and not task.startswith(f"{group}_"):
            LOG.warning("--%s does nothing here: it is for tasks of %s, not for %s", name, group, task)


def warn_of_no_images(env: EnvConfig, task: str) -> None:
    """Say which options for images are set, of a task that shows none."""
    if idle := [f"--env.{name}" for name in ("size", "gray", "stack") if getattr(env, name)]:
        LOG.warning("%s: nothing to do here, as %s shows no images", ", ".join(idle), task)


def uses_ppo(config: Config) -> bool:
    """Whether the options of PPO are used: by its own agent, or by a Dreamer whose policy learns so."""
    return config.agent.name == "ppo" or (config.agent.name == "dreamer" and config.agent.policy != "imagined")


def check_subject(subject: str, config: Config, parts: bool) -> None:
    """Refuse a subject of `bench` that the agent of a configuration has not."""
    agent, policy = config.agent.name, config.agent.policy
    if subject == "ppo" and agent != "ppo" and (agent, policy) != ("dreamer", "on_policy_ppo"):
        raise UserError(f"bench ppo needs PPO, but the agent is {agent}: add --configs cartpole_ppo, or bench learner")
    if subject == "learner" and agent == "random":
        raise UserError("bench learner needs an agent that learns, which random does not: add --agent.name dreamer")
    if subject == "replay" and agent != "dreamer":
        raise UserError(f"bench replay needs a replay, but {agent} has none: add --configs dreamer_v3")
    if parts and (subject, agent, policy) != ("learner", "dreamer", "imagined"):
        raise UserError(
            "--parts is for bench learner with a Dreamer that learns in imagination: "
            "leave it out, or add --configs dreamer_v3"
        )
