"""A look at environments: which suites are here, and what a task is like."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from ..config.schema import Config
from ..data.rows import FLAGS, Episode, Rows
from ..envs.registry import SUITES, find, frames_per_step, import_modules, suite
from ..envs.rows import RowStream
from ..envs.vector import make_vector


def suites_table() -> str:
    """Every suite: installed or how to get it, and an example."""
    lines = []
    for name in SUITES:
        owner = suite(name)
        state = "missing" if owner.missing() else "installed"
        lines.append(f"{name:10} {state:10} {owner.about}")
        if owner.missing():
            lines.append(f"{'':21} get it: {owner.install}")
        elif owner.example:
            lines.append(f"{'':21} e.g. --task {owner.example}")
    return "\n".join([*lines, "", "reverie envs --check TASK builds, checks and times one."])


def check_task(task: str, config: Config, imports: tuple[str, ...] = (), seconds: float = 2.0) -> str:
    """Spaces, a few rows and the speed of one environment of a task, stepped at random."""
    import_modules(imports)
    find(task)
    settings = replace(config.envs, backend="serial", count=1)
    vector = make_vector(task, config.env, settings, config.seed, True, imports, 1)
    stream = RowStream(vector, config.env, checks=True)
    try:
        lines = [f"task          {task}", f"action        {stream.action_space}"]
        lines += [f"observation   {key}: {space}" for key, space in stream.observation_space.items()]
        lines += ["", "the first rows"]
        rows = stream.begin()
        stream.action_space.seed(config.seed)
        for t in range(4):
            lines.append(f"  {t}: {_row(rows)}")
            rows = stream.step(stream.action_space.sample()[None])
        steps, ended, rate = _pace(stream, seconds)
        broken = sum(episode.broken for episode in ended)
        frames = frames_per_step(task, config.env)
        lines += [
            "",
            f"speed         {rate:,.0f} steps/s, {rate * frames:,.0f} frames/s, one environment in one process",
        ]
        found = f"{broken} broke" if broken else "no fault found"
        lines += [f"checked       {steps:,} steps, {len(ended)} episodes: {found}"]
        return "\n".join(lines)
    finally:
        stream.close()


def _pace(stream: RowStream, seconds: float) -> tuple[int, list[Episode], float]:
    steps = 0
    ended: list[Episode] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        stream.step(stream.action_space.sample()[None])
        steps += 1
        ended += stream.finished
    return steps, ended, steps / (time.perf_counter() - start)


def _row(rows: Rows) -> str:
    parts = []
    for key, value in rows.items():
        first = value[0]
        if key in FLAGS:
            parts += [key] if first else []
        elif first.size <= 8:
            parts.append(f"{key} {np.array2string(first, precision=3, suppress_small=True)}")
        else:
            parts.append(f"{key} {first.dtype}{list(first.shape)} in [{first.min():.3g}, {first.max():.3g}]")
    return "  ".join(parts)
