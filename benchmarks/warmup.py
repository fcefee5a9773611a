"""The first minute of a Dreamer's learner with nothing in the compiler's cache: when it learns, and how fast.

    python benchmarks/warmup.py [--configs dreamer_v3] [--task atari_pong] [--compilers N] [--seconds 120] [--json FILE]

`--compilers 0` compiles everything first. Rows are made up; a line is printed for each second, and whenever functions
become compiled ones. Full speed is when twenty updates in a row take at most a tenth more than the last ones.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

BEGAN = time.perf_counter()
LAST, ROW = 50, 20
"""Updates that the final rate is taken from, and those that must be as fast for full speed."""
AFTER = 300
"""Updates after the last function has been taken."""


def seconds() -> float:
    """Seconds since the start."""
    return time.perf_counter() - BEGAN


def say(*words: object) -> None:
    """Print a line with the time."""
    print(f"{seconds():6.1f} s ", *words, flush=True)


def updates(words: argparse.Namespace, folder: str) -> tuple[float, list[float]]:
    """When the first update began, and when each ended."""
    import torch

    from reverie import configure
    from reverie.agents.dreamer import Dreamer
    from reverie.bench import FILLED
    from reverie.build import make_parts, make_rehearsal
    from reverie.tools.bench import synchronize
    from reverie.tools.bench_rows import Fiction

    given = {"task": words.task} if words.task else {}
    config = configure(*words.configs, **given, logdir=folder, run__eval_every=0, run__compilers=words.compilers)
    with closing(make_parts(config)) as parts:
        agent, device = parts.agent, parts.device
        assert isinstance(agent, Dreamer)
        say("the agent is made:", *parts.opening)
        rehearsal = make_rehearsal(config, Path(folder), device, parts.storage)
        fiction = Fiction(agent, *parts.stream.spaces, config.envs.count, device)
        fiction.fill(rehearsal.replay, FILLED, config.replay.batch, rehearsal.length)
        synchronize(device)
        say("updates begin, torch", torch.__version__)
        began, ends = seconds(), [seconds()]
        told = changed = 0
        while seconds() < words.seconds and (agent.changeover is not None or len(ends) - changed < AFTER):
            left = len(agent.changeover.plain) if agent.changeover is not None else 0
            rehearsal.update(agent)
            synchronize(device)
            ends.append(seconds())
            if agent.changeover is not None and len(agent.changeover.plain) < left:
                changed = len(ends)
                say(f"{left - len(agent.changeover.plain)} functions are compiled ones,", "others are still plain")
            if int(ends[-1]) > told:
                told = int(ends[-1])
                say(f"{sum(end > ends[-1] - 1 for end in ends[1:])} updates in the last second")
    return began, ends


def full_speed(ends: list[float]) -> tuple[float, float | None]:
    """The final rate, and when it was reached."""
    times = [after - before for before, after in pairwise(ends)]
    usual = median(times[-LAST:])
    rows = range(len(times) - ROW + 1)
    return 1 / usual, next((ends[i] for i in rows if sum(times[i : i + ROW]) <= 1.1 * ROW * usual), None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", default=["dreamer_v3"], help="presets")
    parser.add_argument("--task", default="atari_pong", help="empty takes that of the presets")
    parser.add_argument("--compilers", type=int, help="processes that compile; by default as many as suit")
    parser.add_argument("--seconds", type=float, default=120.0, help="when to give up")
    parser.add_argument("--json", type=Path, help="where to leave the figures")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {name: str(Path(folder) / name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        began, ends = updates(words, folder)
    rate, full = full_speed(ends)
    found: dict[str, Any] = {"updates/s": rate, "began": began, "first done": ends[1], "full speed": full}
    if full is not None:
        found |= {"full speed after updates began": full - began, "updates before": sum(end < full for end in ends[1:])}
    print(", ".join(f"{name} {value:.1f}" if value is not None else f"{name}: never" for name, value in found.items()))
    if words.json:
        words.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
