"""The composition root: the only place where a configuration becomes objects."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

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
from .config import store
from .config.errors import UserError
from .config.options import flattened
from .config.schema import Config
from .data.counters import Counters
from .data.replay import Replay
from .data.select import Weighting
from .data.storage import Storage, place_of
from .envs.process import core_count
from .envs.registry import find, frames_per_step, import_modules
from .envs.rows import RowStream
from .envs.vector import make_vector
from .log.logger import Logger, Sink
from .log.sinks.jsonl import JsonlSink
from .log.sinks.mlflow import MlflowSink
from .log.sinks.tensorboard import TensorBoardSink
from .log.sinks.terminal import TerminalSink
from .log.sinks.videos import VideosSink
from .log.sinks.wandb import WandbSink
from .nn import ranks
from .training import checkpoint
from .training.device import device_of
from .training.evaluate import Evaluator
from .training.feed import Feed
from .training.loop import Run
from .training.opening import layout_of_rows, replay_place, size_of_agent
from .training.rehearsal import Rehearsal
from .training.stores import check_stores, make_feed, written_store
from .training.threads import tune_cpu

ACTING_SEED = 104_729
"""Added to the seed for a copy of an agent that acts while the agent learns, so that they draw other numbers."""

MOST_ROWS = 16
"""Rows that such a copy collects at a time, at most."""

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


def make_agent(config: Config, observation: spaces.Dict, action: spaces.Space, device: torch.device) -> Agent:
    """The agent, its networks freshly initialised from the seed."""
    if config.agent.name == "random":
        return RandomAgent(action, config.seed, device)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        if config.agent.name == "dreamer":
            return dreamer_of(config)(observation, action, config, device)
        return PPO(observation, action, config.ppo, config.envs.count, config.seed, device, config.run.fast)


def dreamer_of(config: Config) -> type[Dreamer]:
    """The kind of Dreamer that the configuration asks for."""
    if not config.explore.intrinsic:
        return DREAMERS[config.agent.policy]
    if config.agent.policy != "imagined":
        raise UserError("--explore.intrinsic needs --agent.policy imagined: an explorer learns in dreams alone")
    return Plan2Explore


def make_logger(config: Config, folder: Path, parts: Parts, resume_step: int | None, quiet: bool) -> Logger:
    """The logger with the sinks that the configuration asks for."""
    sinks: list[Sink] = [JsonlSink(folder / "metrics.jsonl", resume_step), VideosSink(folder / "videos")]
    if config.log.tensorboard:
        sinks.append(TensorBoardSink(folder, resume_step, (folder / store.NAME).read_text()))
    if config.log.mlflow and not ranks.number():  # the others' episodes go into the first one's run
        sinks.append(MlflowSink(folder, config.log, flattened(config)))
    if config.log.wandb:
        sinks.append(WandbSink(folder, config.log, flattened(config)))
    if not quiet:
        sinks.append(TerminalSink(config.task, config.run.steps, config.log.display, parts.opening))
    return Logger(sinks, frames_per_step(config.task, config.env), choices(parts.stream.action_space))


@dataclass
class Parts:
    """What a run needs that can be wrong without anything having been written: environments, agent, evaluator."""

    device: torch.device
    stream: RowStream
    """The environments; where others act, one that is closed and tells what they are like."""
    agent: Agent
    collector: Source
    evaluator: Evaluator | None
    opening: list[str] = field(default_factory=list)
    """Lines about them for the terminal."""
    storage: Storage | None = None
    """Where the replay is to live, if there is one."""
    feed: Feed | None = None

    def close(self) -> None:
        """End the environments."""
        self.collector.close()
        if self.evaluator is not None:
            self.evaluator.close()


def make_parts(config: Config) -> Parts:
    """The environments and a new agent."""
    import_modules(config.imports)
    find(config.task)
    check_stores(config)
    device = device_of(config)
    torch.set_float32_matmul_precision("high")
    with ExitStack() as unless_made:
        stream = unless_made.enter_context(closing(make_training_stream(config)))
        tune_cpu(config, stream.observation_space)
        agent = make_agent(config, stream.observation_space, stream.action_space, device)
        ranks.alike(agent)
        opening = [f"{config.agent.name} on {device.type}: {size_of_agent(agent)}"]
        storage: Storage | None = None
        feed: Feed | None = None
        if isinstance(agent, Dreamer):
            layout, storage, line = replay_place(config, agent, stream.observation_space)
            opening.append(line)
            feed = make_feed(config, layout)
        collector = unless_made.enter_context(closing(make_collector(config, agent, stream, storage)))
        parts = Parts(device, stream, agent, collector, make_evaluator(config, device), opening, storage, feed)
        unless_made.pop_all()
    return parts


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


def make_collector(config: Config, agent: Agent, stream: RowStream, storage: Storage | None) -> Source:
    """What collects the rows of a run."""
    settings, count, device = config.collect, config.envs.count, device_of(config)
    if not config.store.live:
        return Idle(count)
    if settings.mode == "inline":
        return make_inline(config, agent, stream, device)
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
    make = partial(make_actor, config)
    if settings.mode == "ray":
        if settings.device == "cuda":
            raise UserError("--collect.device cuda is for --collect.mode process: actors of Ray act on CPUs")
        return RayCollector(agent, make, lots, config.envs, place, connected(settings.address))
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--collect.device cuda: torch sees no GPU here; use --collect.device cpu")
    return ProcessCollector(agent, make, lots, config.envs, place)


def make_inline(config: Config, agent: Agent, stream: RowStream, device: torch.device) -> Source:
    """What collects in this process: beside learning where a GPU learns from replayed rows by itself."""
    if config.envs.groups > 1:
        return turns(partial(make_group, config), config.envs, agent, device)
    alone = device.type == "cuda" and config.run.fast != "off" and ranks.count() == 1
    if not alone or not isinstance(agent, Dreamer) or agent.on_policy:
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


def make_actor(config: Config, number: int, count: int, life: int) -> Collector:
    """The collector of a generator in one of its lives, with seeds of its own; its agent's weights are to come."""
    import_modules(config.imports)
    device = torch.device(config.collect.device)
    seed = int(np.random.SeedSequence([config.seed, number, life]).generate_state(1)[0] >> 1)
    envs = replace(config.envs, count=count)
    config = replace(config, seed=seed, envs=envs if envs.backend == "native" else replace(envs, backend="serial"))
    config = replace(config, run=replace(config.run, fast="off" if device.type == "cpu" else "graph"))
    stream = make_stream(config)
    return Collector(stream, make_agent(config, *stream.spaces, device), device)


def make_run(config: Config, folder: Path, parts: Parts, resume: bool, quiet: bool = False) -> Run:
    """A run ready to train; resumed ones stand where their checkpoint was written."""
    latest = folder / checkpoint.FOLDER / "latest.pt"
    saved = checkpoint.load(latest) if resume and latest.exists() else None
    step = saved["counters"]["step"] if saved else 0 if resume else None
    logger = make_logger(config, folder, parts, step, quiet)
    if config.store.write != "off":
        ranks.wait()  # until the first has an MLflow run
        parts.collector.record(written_store(config, folder))
    run = Run(
        folder=folder,
        config=config.run,
        agent=parts.agent,
        collector=parts.collector,
        evaluator=parts.evaluator,
        logger=logger,
        counters=Counters(total=config.run.steps),
        rehearsal=make_rehearsal(config, folder, parts.device, parts.storage, parts.feed) if parts.storage else None,
        frames_per_step=frames_per_step(config.task, config.env),
        log_every=config.log.every,
    )
    if saved:
        checkpoint.restored(latest, lambda: run.restore(saved))
        best = latest.with_name("best.pt")  # it may be newer than the latest, if the run was killed
        run.best = max(run.best, checkpoint.load(best)["best"]) if best.exists() else run.best
    if resume and ranks.count() > 1:
        run.follow_first()
    return run


def make_rehearsal(
    config: Config, folder: Path, device: torch.device, storage: Storage = "ram", feed: Feed | None = None
) -> Rehearsal:
    """The replay and the pace of learning from it."""
    settings = config.replay
    shares = {name: getattr(settings, name) for name in ("uniform", "online", "recent", "prioritised")}
    replay = Replay(
        config.envs.count,
        settings.capacity,
        device=device,
        selectors={"streams": 1.0} if settings.start == "carried" else shares,
        storage=storage,
        folder=folder / "replay",
        seed=config.seed + RANK_SEED * ranks.number(),
        context=int(settings.start == "stored"),
        weighting=Weighting(ends=settings.ends, scale=settings.recency, alpha=settings.alpha),
    )
    return Rehearsal(replay, settings, folder, feed)


def choices(space: spaces.Space) -> int:
    """How many discrete actions there are; 0 for continuous ones."""
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.prod())
    return int(space.n) if isinstance(space, spaces.Discrete) else 0


def make_evaluator(config: Config, device: torch.device) -> Evaluator | None:
    """The evaluator, None where the run never evaluates."""
    if config.run.eval_apart or (not config.run.eval_every and not config.run.eval_at_end):
        return None
    count = min(config.run.eval_envs, config.run.eval_episodes)
    stream = make_stream(config, training=False, count=count)
    return Evaluator(stream, device, config.run.eval_episodes, config.run.eval_videos)
