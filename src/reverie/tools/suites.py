"""A look at environments: which suites are here, and what a task is like."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium
import numpy as np

from ..config.errors import UserError
from ..config.owners import warn_of_no_images
from ..config.schema import Config
from ..data.rows import FLAGS, Episode, Rows
from ..envs import checks
from ..envs.form import ActionForm, ObservationForm, is_image
from ..envs.registry import SUITES, find, frames_per_step, import_modules, make_own_env, suite
from ..envs.rows import RowStream
from ..envs.vector import make_vector


def suites_table() -> str:
    """Every suite: installed or how to get it, and an example."""
    lines = []
    for name in SUITES:
        owner = suite(name)
        state = "missing" if owner.absent() else "installed"
        lines.append(f"{name:10} {state:10} {owner.about}")
        if owner.absent():
            lines.append(f"{'':21} get it: {owner.install}")
        elif owner.example:
            lines.append(f"{'':21} e.g. --task {owner.example}")
    return "\n".join([*lines, "", "reverie envs --check TASK builds, checks and times one."])


def check_task(config: Config, seconds: float = 2.0) -> str:
    """Spaces, a few rows and the speed of the environments of a task, stepped at random."""
    import_modules(config.imports)
    find(config.task)
    if config.envs.checks and (found := faults(config)):
        raise UserError(f"environment 0: {'; '.join(found)}: {checks.MEND}")
    with told() as warnings:
        vector = make_vector(config.task, config.env, config.envs, config.seed, True, config.imports)
        stream = RowStream(vector, config.env, checks=config.envs.checks)
        if not any(map(is_image, stream.observation_space.values())):
            warn_of_no_images(config.env, config.task)
        try:
            lines = [f"task          {config.task}", *_look(stream, config.seed), "", *_speed(stream, config, seconds)]
        finally:
            stream.close()
    lines += [f"warned        {f'{times} x ' if times > 1 else ''}{line}" for line, times in warnings.items()]
    return "\n".join(lines)


def _look(stream: RowStream, seed: int) -> list[str]:
    lines = [f"action        {stream.action_space}"]
    lines += [f"observation   {key}: {space}" for key, space in stream.observation_space.items()]
    lines += ["", "the first rows"]
    rows = stream.begin()
    stream.action_space.seed(seed)
    for t in range(4):
        lines.append(f"  {t}: {_row(rows)}")
        rows = stream.step(_actions(stream))
    return lines


@contextmanager
def told() -> Iterator[Counter[str]]:
    """How often each warning was given meanwhile; they are kept back, as a check would repeat them without end."""
    counts: Counter[str] = Counter()
    logger = logging.getLogger("reverie")

    def count(record: logging.LogRecord) -> bool:
        counts[record.getMessage()] += 1
        return False

    logger.addFilter(count)
    try:
        yield counts
    finally:
        logger.removeFilter(count)


def faults(config: Config) -> list[str]:
    """All that is wrong with what an environment of a task shows in some steps, each fault once."""
    try:
        made = make_own_env(config.task, config.env, True, config.imports)
    except UserError:
        raise
    except Exception:  # the slot it runs in tries again and tells of it
        return []
    with made as env:
        refused = (_refusal(ObservationForm, env.observation_space), _refusal(ActionForm, env.action_space))
        if any(refused):
            raise UserError("; ".join(filter(None, refused)))
        found = _survey(env, config.seed)
    return list(found.values())


def _refusal(form: type[ObservationForm | ActionForm], space: gymnasium.Space) -> str:
    try:
        form(space)
    except UserError as error:
        return str(error)
    return ""


def _survey(env: gymnasium.Env, seed: int) -> dict[str, str]:
    """Faults by what they are about; an environment that breaks is left to the slot it runs in, which tells of it."""
    form, found = ObservationForm(env.observation_space), dict[str, str]()
    env.action_space.seed(seed)
    ended = True
    for step in range(checks.STEPS):
        try:
            if ended:
                observation, _ = env.reset(seed=seed + step)
                ended = False
            else:
                observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
                found = {"reward": fault, **found} if (fault := checks.reward_fault(reward)) else found
                ended = bool(terminated or truncated)
        except UserError:
            raise
        except Exception:
            return found
        found = checks.observation_faults(form, observation) | found
    return found


def _actions(stream: RowStream) -> np.ndarray:
    return np.stack([stream.action_space.sample() for _ in range(stream.count)])


def _speed(stream: RowStream, config: Config, seconds: float) -> list[str]:
    steps, low, high = 0, np.inf, -np.inf
    ended: list[Episode] = []
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        rows = stream.step(_actions(stream))
        paid = rows["reward"][~rows["is_first"]]
        low, high = min([low, *paid]), max([high, *paid])
        steps += stream.count
        ended += stream.finished
    rate, frames = steps / passed, frames_per_step(config.task, config.env)
    broken = sum(episode.broken for episode in ended)
    where = "one environment" if stream.count == 1 else f"{stream.count} environments"
    where += " in this process" if config.envs.backend == "serial" else f", backend {config.envs.backend}"
    paid_for = [f"rewards       from {low:g} to {high:g}, by chance alone"] if low <= high else []
    return [
        f"speed         {rate:,.0f} steps/s, {rate * frames:,.0f} frames/s, {where}",
        *paid_for,
        f"checked       {steps:,} steps, {len(ended)} episodes: {f'{broken} broke' if broken else 'no fault found'}",
    ]


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
