"""Who plays and where: environments, agents, and what collects their rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from gymnasium import spaces

from .agents.base import Agent
from .agents.dreamer import Dreamer
from .agents.latent_ppo import DreamPPO, LatentPPO
from .agents.plan2explore import Plan2Explore
from .agents.ppo import PPO
from .agents.random import RandomAgent
from .collect.collector import Collector, Idle, Source
from .collect.gathering import lots_of
from .collect.process import ProcessCollector
from .collect.ray import RayCollector, connected
from .collect.turns import check_groups, turns
from .collect.understudy import Understudy
from .config.errors import UserError
from .config.schema import Config
from .data.storage import Storage, place_of
from .envs.process import core_count
from .envs.registry import import_modules
from .envs.rows import RowStream
from .envs.vector import make_vector
from .nn import ranks
from .training.device import device_of
from .training.opening import layout_of_rows

ACTING_SEED = 15_485_863
"""Added to the seed for a copy of an agent that acts while the agent learns, so that they draw other numbers."""

MOST_ROWS = 16
"""Rows that such a copy collects at a time, at most."""

AgentKind = Callable[[spaces.Dict, spaces.Space, Config, torch.device], Agent]
"""Makes an agent for observations and actions, as a configuration says: a class of one's own, for instance."""
AGENTS: dict[str, AgentKind] = {"ppo": PPO, "random": RandomAgent}
"""Name -> the agent; a Dreamer also goes by its policy."""
DREAMERS = {"imagined": Dreamer, "on_policy_ppo": LatentPPO, "imagined_ppo": DreamPPO}
"""How actor and critic learn -> the agent."""

RANK_SEED = 7919
"""Added to the seeds of environments and replay for each process that learns along."""
GROUP_SEED = 104_729
"""Added to the seed of environments for each group of them."""
EVAL_SEED = 1_000_003
"""Added to the seed of evaluation environments, so that they show other episodes than training's."""


def make_stream(config: Config, training: bool = True, count: int | None = None) -> RowStream:
    """The stream of rows that the agent learns from, or the one it is evaluated on."""
    count = count or config.envs.count
    seed = config.seed + RANK_SEED * ranks.number() + EVAL_SEED * (not training)
    # a suite's own vector environment may be for training alone, since it is not made to be filmed
    native = config.envs.backend == "native" and not training
    settings = replace(config.envs, backend="auto") if native else config.envs
    vector = make_vector(config.task, config.env, settings, seed, training, config.imports, count)
    options = config.env if training else replace(config.env, reward_clip=0.0, reward_scale=1.0)
    return RowStream(vector, options, checks=config.envs.checks)


def make_agent(
    config: Config, observation: spaces.Dict, action: spaces.Space, device: torch.device, kind: AgentKind | None = None
) -> Agent:
    """The agent, of that kind or of the one the configuration names, its networks freshly initialised from the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        agent = (kind or kind_of(config))(observation, action, config, device)
        if not hasattr(agent, "generator"):
            agent.generator = torch.Generator(device).manual_seed(config.seed + ranks.number())
        return agent


def kind_of(config: Config) -> AgentKind:
    """The kind of agent that the configuration names."""
    return dreamer_of(config) if config.agent.name == "dreamer" else AGENTS[config.agent.name]


def dreamer_of(config: Config) -> type[Dreamer]:
    """The kind of Dreamer that the configuration asks for."""
    if not config.explore.intrinsic:
        return DREAMERS[config.agent.policy]
    if config.agent.policy != "imagined":
        raise UserError("--explore.intrinsic needs --agent.policy imagined: an explorer learns in dreams alone")
    return Plan2Explore


def make_training_stream(config: Config) -> RowStream:
    """The environments of a run; of those that generators or groups have, one for its spaces, closed."""
    inline = config.collect.mode == "inline"
    check_groups(config.envs, inline)
    if inline and config.envs.groups == 1 and config.store.live:
        return make_stream(config)
    if config.envs.backend == "process" and config.store.live and not inline:
        raise UserError("--envs.backend process is for --collect.mode inline: generators step environments themselves")
    with closing(make_stream(replace(config, envs=replace(config.envs, backend="serial")), count=1)) as stream:
        return stream


def make_collector(
    config: Config, agent: Agent, stream: RowStream, storage: Storage | None, kind: AgentKind | None = None
) -> Source:
    """What collects the rows of a run."""
    settings, count, device = config.collect, config.envs.count, device_of(config)
    if not config.store.live:
        return Idle(count)
    if settings.mode == "inline":
        return make_inline(config, agent, stream, device, kind)
    generators = settings.generators or min(count, core_count() if settings.mode == "process" else count)
    if generators > count:
        raise UserError(
            f"--collect.generators {generators} have only --envs.count {count} environments to share: raise that to "
            f"{generators} or a multiple"
        )
    layout = layout_of_rows(agent, stream.observation_space, count, device)
    rows, ahead = (agent.rollout, 1) if agent.on_policy else (settings.rows, settings.ahead)
    place = device if storage is None or agent.on_policy else place_of(storage, device)
    config = replace(config, seed=config.seed + RANK_SEED * ranks.number())
    lots = lots_of(layout, count, generators, rows, ahead)
    make = partial(make_actor, config, kind)
    if settings.mode == "ray":
        if settings.device == "cuda":
            raise UserError("--collect.device cuda is for --collect.mode process: actors of Ray act on CPUs")
        return RayCollector(agent, make, lots, config.envs, place, connected(settings.address))
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--collect.device cuda: torch sees no GPU here; use --collect.device cpu")
    return ProcessCollector(agent, make, lots, config.envs, place)


def make_inline(
    config: Config, agent: Agent, stream: RowStream, device: torch.device, kind: AgentKind | None
) -> Source:
    """What collects in this process: beside learning where a GPU learns from replayed rows by itself."""
    if config.envs.groups > 1:
        return turns(partial(make_group, config), config.envs, agent, device)
    alone = device.type == "cuda" and config.run.fast != "off" and ranks.count() == 1
    # what acting depends on is known of our own agents alone
    if not alone or kind is not None or not isinstance(agent, Dreamer) or agent.on_policy:
        return Collector(stream, agent, device)
    settings = config.replay
    rows = int(settings.batch * settings.length / settings.ratio / stream.count) if settings.ratio else MOST_ROWS
    acting = replace(config, seed=config.seed + ACTING_SEED, run=replace(config.run, fast="graph"))
    copy = make_agent(acting, *stream.spaces, device)
    assert isinstance(copy, Dreamer)
    copy.only_act()
    return Understudy(stream, agent, copy, device, min(max(1, rows), MOST_ROWS))


def make_group(config: Config, number: int, count: int) -> RowStream:
    """The environments of one of the groups that take turns, with seeds of their own."""
    envs = replace(config.envs, workers=max(1, (config.envs.workers or core_count()) // config.envs.groups))
    return make_stream(replace(config, seed=config.seed + GROUP_SEED * number, envs=envs), count=count)


def make_actor(config: Config, kind: AgentKind | None, number: int, count: int, life: int) -> Collector:
    """The collector of a generator in one of its lives, with seeds of its own; its agent's weights are to come."""
    import_modules(config.imports)
    device = torch.device(config.collect.device)
    seed = int(np.random.SeedSequence([config.seed, number, life]).generate_state(1)[0] >> 1)
    envs = replace(config.envs, count=count)
    config = replace(config, seed=seed, envs=envs if envs.backend == "native" else replace(envs, backend="serial"))
    config = replace(config, run=replace(config.run, fast="off" if device.type == "cpu" else "graph"))
    stream = make_stream(config)
    return Collector(stream, make_agent(config, *stream.spaces, device, kind), device)
