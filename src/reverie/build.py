"""The composition root: here, and in `actors`, a configuration becomes objects, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from gymnasium import spaces

from .actors import RANK_SEED, AgentKind, kind_of, make_agent, make_collector, make_stream, make_training_stream
from .agents.base import Agent
from .agents.dreamer import Dreamer
from .collect.collector import Source
from .config import owners, store
from .config.errors import UserError
from .config.options import flattened
from .config.schema import Config
from .data.counters import Counters
from .data.replay import Replay
from .data.select import Weighting
from .data.storage import Storage, bytes_needed
from .envs.form import is_image
from .envs.registry import find, frames_per_step, import_modules
from .envs.rows import RowStream
from .log.logger import Logger, Sink
from .log.sinks.jsonl import JsonlSink
from .log.sinks.mlflow import MlflowSink
from .log.sinks.relay import RelaySink
from .log.sinks.tensorboard import TensorBoardSink
from .log.sinks.terminal import TerminalSink
from .log.sinks.videos import VideosSink
from .log.sinks.wandb import WandbSink
from .nn import ranks
from .training import checkpoint
from .training.compilers import Compilers, mark_of, room, suited
from .training.device import device_of
from .training.evaluate import Evaluator
from .training.feed import Feed
from .training.loop import Run
from .training.opening import replay_place, size_of_agent
from .training.rehearsal import Rehearsal
from .training.stores import check_stores, make_feed, written_store
from .training.threads import tune_cpu


def make_logger(
    config: Config, folder: Path, parts: Parts, resume_step: int | None, quiet: bool, more: Sequence[Sink] = ()
) -> Logger:
    """The logger with the sinks that the configuration asks for, and more."""
    sinks: list[Sink] = [JsonlSink(folder / "metrics.jsonl", resume_step), VideosSink(folder / "videos")]
    if config.log.tensorboard:
        sinks.append(TensorBoardSink(folder, resume_step, (folder / store.NAME).read_text(), parts.agent.family))
    if config.log.mlflow and not ranks.number():  # the others' episodes go into the first one's run
        sinks.append(MlflowSink(folder, config.log, flattened(config)))
    if config.log.wandb:
        wandb = WandbSink(folder, config.log, flattened(config))
        sinks.append(RelaySink(wandb, folder) if config.run.eval_apart else wandb)
    if not quiet:
        sinks.append(TerminalSink(config.task, config.run.steps, config.log.display, parts.opening))
    frames, actions = frames_per_step(config.task, config.env), choices(parts.stream.action_space)
    return Logger([*sinks, *more], frames, actions, parts.agent.family)


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
        """End the environments, and what runs beside the agent."""
        self.agent.close()
        self.collector.close()
        if self.evaluator is not None:
            self.evaluator.close()


def make_parts(config: Config, kind: AgentKind | None = None) -> Parts:
    """The environments and a new agent, of that kind or of the one the configuration names."""
    import_modules(config.imports)
    find(config.task)
    check_stores(config)
    device = device_of(config)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True  # shapes stay the same, so the fastest convolutions are worth a search
    with ExitStack() as unless_made:
        # first, since processes take seconds to load torch
        count = suited(config, device, kind is not None)
        compilers = unless_made.enter_context(closing(Compilers(count, mark_of(config, device) if count else None)))
        config = replace(config, run=replace(config.run, compilers=len(compilers.processes)))
        stream = unless_made.enter_context(closing(make_training_stream(config)))
        tune_cpu(config, stream.observation_space)
        if not ranks.number() and not any(map(is_image, stream.observation_space.values())):
            owners.warn_of_no_images(config.env, config.task)
        agent = make_agent(config, *stream.spaces, device, kind)
        ranks.alike(agent)
        name = config.agent.name if kind is None else type(agent).__name__
        opening = [f"{name} on {device.type}: {size_of_agent(agent)}"]
        storage: Storage | None = None
        feed: Feed | None = None
        if agent.replays:
            layout, storage, line = replay_place(config, agent, stream.observation_space, device)
            opening.append(line)
            feed = make_feed(config, layout)
            if isinstance(agent, Dreamer) and agent.changeover is not None:
                reserved = bytes_needed(layout, config.replay.capacity, config.envs.count) * (storage == "gpu")
                make = partial(make_agent, config, *stream.spaces, device)
                compilers.order(agent.regions, make, layout, room(agent, reserved))
                agent.changeover.begin(compilers)
        collector = unless_made.enter_context(closing(make_collector(config, agent, stream, storage, kind)))
        parts = Parts(device, stream, agent, collector, make_evaluator(config, device), opening, storage, feed)
        unless_made.pop_all()
    return parts


def make_run(
    config: Config, folder: Path, parts: Parts, resume: bool, quiet: bool = False, sinks: Sequence[Sink] = ()
) -> Run:
    """A run ready to train; resumed ones stand where their checkpoint was written."""
    latest = folder / checkpoint.FOLDER / "latest.pt"
    saved = checkpoint.load_latest(latest) if resume and latest.exists() else None
    if saved and (kind := saved["kind"]) != type(parts.agent).__name__:
        own = "" if kind == kind_of(config).__name__ else f", agent={kind}"
        raise UserError(f"{folder} is a run of an agent {kind}: go on by reverie.resume({str(folder)!r}{own})")
    step = saved["counters"]["step"] if saved else 0 if resume else None
    logger = make_logger(config, folder, parts, step, quiet, sinks)
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
        run.best = checkpoint.best_return(latest.with_name("best.pt"), run.best)
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
