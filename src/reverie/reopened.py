"""Agents of finished runs, put together again from a checkpoint: to be evaluated, to dream, to play, to be exported."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from .actors import EVAL_SEED, AgentKind, make_agent, make_stream
from .agents.base import Agent, Mode
from .config.errors import UserError
from .config.schema import Config
from .envs.registry import find, frames_per_step, make_own_env
from .envs.slot import tell
from .envs.translation import Translation
from .tools.controls import action_names, controls_of
from .tools.dream import Stretch, dreams
from .tools.export import check_target, describe, export
from .tools.lucid import LucidDream
from .tools.player import Player
from .tools.steps import make_step
from .tools.web import Stage
from .training import checkpoint
from .training.device import device_of
from .training.evaluate import Evaluation, Evaluator
from .training.threads import tune_cpu
from .world.dream import Dream

LOG = logging.getLogger("reverie")


def evaluated(
    config: Config, file: Path, episodes: int, mode: Mode, seed: int = 0, kind: AgentKind | None = None
) -> dict[str, float | None]:
    """Figures of episodes played by the agent of a checkpoint; a success rate that nobody knows is None."""
    figures = evaluate_checkpoint(config, file, episodes, mode, seed, kind).summary()
    return {"success_rate": None, **figures, "episodes": int(figures["episodes"])}


def evaluate_checkpoint(
    config: Config, file: Path, episodes: int, mode: Mode, seed: int = 0, kind: AgentKind | None = None
) -> Evaluation:
    """Episodes played by the agent of a checkpoint."""
    device, saved = device_of(config), checkpoint.load(file)
    # other episodes than those by which the best checkpoint was chosen
    shifted = replace(config, seed=config.seed + seed + EVAL_SEED)
    evaluator = Evaluator(make_stream(shifted, False, min(config.run.eval_envs, episodes)), device, episodes)
    try:
        agent = make_agent(uncompiled(config), *evaluator.stream.spaces, device, kind)
        restore(agent, saved, file)
        result = evaluator.evaluate(agent, mode)
        assert result is not None
        return result
    finally:
        evaluator.close()


def dream_checkpoint(
    config: Config, file: Path, episodes: int, stretch: Stretch, mode: Mode, seed: int = 0
) -> tuple[list[Dream], int]:
    """Dreams of episodes played by the agent of a checkpoint, and the step it was written at."""
    device, saved = device_of(config), checkpoint.load(file)
    # rows as training shows them, whose rewards and ends the world model has learned, of other episodes
    stream = make_stream(replace(config, seed=config.seed + seed + EVAL_SEED), count=episodes)
    try:
        agent = make_agent(uncompiled(config), *stream.spaces, device)
        restore(agent, saved, file)
        return dreams(agent, stream, stretch, mode, device), int(saved["counters"]["step"])
    finally:
        stream.close()


@contextmanager
def lucid_dream(config: Config, file: Path, context: int, mode: Mode, seed: int = 0) -> Iterator[Stage]:
    """A dream of a checkpoint's agent to act in, for a page to show."""
    device, saved = device_of(config), checkpoint.load(file)
    with make_task_env(config) as env:
        names = action_names(env)
    # rows as training shows them, like those of `dream_checkpoint`
    stream = make_stream(replace(config, seed=config.seed + seed + EVAL_SEED), count=1)
    try:
        tune_cpu(config, stream.observation_space)
        agent = make_agent(uncompiled(config), *stream.spaces, device)
        dream = LucidDream(agent, stream, context, mode, device)
        restore(agent, saved, file)
        facts = {"task": config.task, "step": int(saved["counters"]["step"]), "checkpoint": file.name}
        yield Stage(dream, controls_of(stream.action_space, names), facts)
    finally:
        stream.close()


def make_task_env(config: Config) -> gymnasium.Env:
    """An environment of the task as it is evaluated, showing and taking what it does by itself."""
    try:
        return make_own_env(config.task, config.env, False, config.imports)
    except UserError:
        raise
    except Exception as error:  # the user's code runs here, and may fail in any way
        raise UserError(f"task {config.task!r} cannot be made: {tell(error)}: mend it") from error


def make_player(config: Config, file: Path, env: gymnasium.Env | None = None, kind: AgentKind | None = None) -> Player:
    """The agent of a checkpoint, ready to act in environments of its task; `env` is one if one is there already."""
    device, saved = device_of(config), checkpoint.load(file)
    with make_task_env(config) if env is None else nullcontext(env) as own:
        translation = Translation(own, config.env, find(config.task)[0].handles)
    seen, done = translation.observation_space, translation.action_space
    agent = make_agent(uncompiled(config), seen, done, device, kind)
    restore(agent, saved, file)
    return Player(agent, translation, partial(make_task_env, config), device)


def export_checkpoint(config: Config, file: Path, out: Path, stochastic: bool) -> dict[str, Any]:
    """Write the acting step of a checkpoint's agent into a file; the description that stands in it."""
    check_target(out)
    ppo, world = replace(config.ppo, precision="float32"), replace(config.world, precision="float32")
    player = make_player(replace(config, device="cpu", ppo=ppo, world=world), file)
    step = make_step(player.agent, player.observation_space, player.action_space, stochastic)
    facts = {
        "task": config.task,
        "agent": config.agent.name,
        "step": int(checkpoint.load(file)["counters"]["step"]),
        "actions_are": "drawn with the noise that goes in" if stochastic else "the likeliest; nothing is random",
        "frames_per_step": frames_per_step(config.task, config.env),
        "images": {"size": config.env.size, "gray": config.env.gray, "stack": config.env.stack},
    }
    description = describe(step, player.action_space, facts)
    export(step, description, out)
    return description


def restore(agent: Agent, saved: dict[str, Any], file: Path) -> None:
    """Give an agent what a checkpoint holds of one; a word if that was of another class, whose weights may serve."""
    checkpoint.restored(file, lambda: agent.restore(saved["agent"]))
    if saved["kind"] != type(agent).__name__:
        LOG.warning(
            "%s is of an agent %s, with whose weights a %s acts here: it does so itself in Python, as agent=%s of "
            "reverie.load or reverie.evaluate", file, saved["kind"], type(agent).__name__, saved["kind"],
        )  # fmt: skip


def uncompiled(config: Config) -> Config:
    """The configuration of an agent that only acts: compiling is for learning."""
    return replace(config, run=replace(config.run, fast="off" if config.run.fast == "off" else "graph"))
