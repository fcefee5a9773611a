"""An evaluator apart from the run: it plays each candidate that the run puts down, and keeps the best."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .actors import make_agent, make_stream
from .agents.base import Mode
from .config.schema import Config
from .log.logger import Sink
from .log.sinks.jsonl import GuestSink, evaluated_steps
from .log.sinks.mlflow import MlflowGuest
from .log.sinks.relay import pass_on_rest
from .log.sinks.tensorboard import TensorBoardSink
from .log.sinks.videos import VideosSink
from .log.video import Clip, reel
from .reopened import restore, uncompiled
from .training import checkpoint
from .training.device import device_of
from .training.evaluate import Evaluation, Evaluator
from .training.lock import LOCK, in_use

LOOK = 0.5
"""Seconds between two looks for a candidate."""
NICENESS = 5
"""How much an evaluator yields to them."""
CANDIDATE = "candidate"


def follow(config: Config, folder: Path) -> Iterator[tuple[int, dict[str, float], bool]]:
    """The step and the figures of each evaluation, and whether it is the best; ends with the run or at its goal."""
    run, device = config.run, device_of(config)
    torch.set_num_threads(run.threads or 1)  # the other cores are for those who collect and learn
    os.nice(NICENESS)
    evaluator = Evaluator(
        make_stream(config, False, min(run.eval_envs, run.eval_episodes)), device, run.eval_episodes, run.eval_videos
    )
    sinks: list[Sink] = []
    try:
        agent = make_agent(uncompiled(config), *evaluator.stream.spaces, device)
        mode: Mode = "sample" if run.eval_stochastic else "eval"
        best = _best_so_far(folder)
        for path, saved in candidates(folder):
            restore(agent, saved, path)
            result = evaluator.evaluate(agent, mode)
            assert result is not None
            figures = result.summary()
            better = figures["mean_return"] >= best
            if better:
                best = figures["mean_return"]
                checkpoint.save(path.with_name("best.pt"), saved | {"best": best})
            sinks = sinks or make_sinks(config, folder)
            write(sinks, saved["counters"], result)
            yield saved["counters"]["step"], figures, better
            if run.goal is not None and figures["mean_return"] >= run.goal:
                return
    finally:
        evaluator.close()
        for sink in sinks:
            sink.close()
        if config.log.wandb and not in_use(folder):
            pass_on_rest(folder, config.log)


def make_sinks(config: Config, folder: Path) -> list[Sink]:
    """Where evaluations go: beside what the run writes, which has begun with it once there is a candidate.

    W&B takes one writer at a time: the run itself passes them on, see `log.sinks.relay`.
    """
    sinks: list[Sink] = [GuestSink(folder / "metrics.jsonl"), VideosSink(folder / "videos")]
    sinks += [TensorBoardSink(folder / "evaluator")] if config.log.tensorboard else []
    sinks += [MlflowGuest(folder, config.log)] if config.log.mlflow else []
    return sinks


def candidates(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What the run in a folder puts down to be evaluated, each once; those that came too fast are passed over."""
    path = folder / checkpoint.FOLDER / f"{CANDIDATE}.pt"
    last, seen = -1, _left_over(folder, path)
    while True:
        active = in_use(folder)  # before looking, so that the last one is not missed
        mark = _mark(path)
        saved = checkpoint.load(path) if mark not in (None, seen) else None
        seen = mark
        if saved is not None and saved["counters"]["step"] != last:
            last = saved["counters"]["step"]
            yield path, saved
        elif not active:
            return
        else:
            time.sleep(LOOK)


def _mark(path: Path) -> tuple[int, int] | None:
    """What tells a file from a later one of its name: when it was written, and its size; None where there is none."""
    if not path.exists():
        return None
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _left_over(folder: Path, path: Path) -> tuple[int, int] | None:
    """The mark of a candidate that is not to be played: the run has been resumed since, or it has been played."""
    mark, lock = _mark(path), _mark(folder / LOCK)
    if mark is None or lock is None or mark >= lock:
        return None
    if in_use(folder):  # it may be of a step that the run was set back from
        return mark
    return mark if checkpoint.load(path)["counters"]["step"] in evaluated_steps(folder / "metrics.jsonl") else None


def write(sinks: list[Sink], counters: dict[str, float], result: Evaluation) -> None:
    """Log an evaluation as the run itself would."""
    scalars = {"frames": counters["frames"], "updates": counters["updates"], "time": counters["elapsed"]}
    scalars |= {f"eval/{name}": value for name, value in result.summary().items()}
    videos: dict[str, np.ndarray] = {}
    if result.clips:
        videos["eval/episodes"] = Clip.of(reel(result.clips, result.clip_scores), 20)
    for sink in sinks:
        sink.write(int(counters["step"]), scalars, videos)


def _best_so_far(folder: Path) -> float:
    return float(checkpoint.best_return(folder / checkpoint.FOLDER / "best.pt", float("-inf")))
