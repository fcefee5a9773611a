"""Rows a second against the number of generators, what they cost the learner, and what publishing weights takes.

python benchmarks/generators.py [--cases atari dmc_proprio] [--generators 1 2 4 8 16] [--envs 4] [--seconds 5]
                                [--device cpu|cuda] [--learner auto|cpu|cuda|none] [--fast graph|auto|off] [--json FILE]

Acting: generators with a Dreamer of 12m while nobody learns; each has `--envs` environments, and one core to act with.
All are started once; while fewer are measured the others wait for leave, which takes no time.
Learner: updates a second alone, while the generators wait; and while all of them are at work at full speed, their rows
taken as they come and weights published. Publishing: until new weights lie in the memory that generators act from.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import torch

import reverie
from reverie.agents.base import Agent
from reverie.build import make_parts, make_run
from reverie.collect.process import ProcessCollector
from reverie.config.schema import Config
from reverie.training.folder import prepare
from reverie.training.loop import Run
from reverie.training.rehearsal import Rehearsal

WARMUP = 12
"""Updates until a GPU's graphs are captured."""
PUBLICATIONS = 10
SETTLING = 0.5
"""Seconds until generators that nobody takes rows from are full and wait."""
AHEAD = 8
"""Updates that a GPU may be given before the oldest of them is done, so that it never has to wait for the next one."""


def config_of(case: str, count: int, words: argparse.Namespace, device: str) -> Config:
    """A Dreamer on the task of a preset, with so many generators."""
    return reverie.configure(
        case,
        device=device,
        logdir=str(Path(words.folder) / str(time.monotonic_ns())),
        envs__count=count * words.envs,
        collect__mode="process",
        collect__generators=count,
        collect__rows=words.rows,
        collect__device=words.device,
        replay__capacity=50_000,
        run__steps=10**9,
        run__eval_every=0,
        run__eval_at_end=False,
        run__compilers=0,
        run__fast=words.fast,
        log__tensorboard=False,
    )


def acting_figures(case: str, words: argparse.Namespace) -> tuple[dict[int, float], float]:
    """Rows a second of so many generators together while nobody learns, and seconds to publish weights to all."""
    with closing(make_parts(config_of(case, max(words.generators), words, "cpu"))) as parts:
        assert isinstance(parts.collector, ProcessCollector)
        for _ in range(3):
            parts.collector.collect(1)
        seconds = publication_seconds(parts.collector, parts.agent)
        return {count: acting_rate(parts.collector, count, words.seconds) for count in words.generators}, seconds


def acting_rate(collector: ProcessCollector, count: int, seconds: float) -> float:
    """Rows a second of the first generators, once those that the others had ready are in their slots."""
    everyone, collector.crews = collector.crews, collector.crews[:count]
    time.sleep(SETTLING)
    for _ in range(2):
        collector.collect(1)
    rows, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds:
        rows += collector.collect(1).rows["reward"][:-1].numel()
    collector.crews = everyone
    return rows / passed


def publication_seconds(collector: ProcessCollector, agent: Agent) -> float:
    """The usual time until weights are published, while all generators are at work."""
    times: list[float] = []
    while len(times) < PUBLICATIONS:
        collector.collect(1)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begin = time.perf_counter()
        if collector.weights.publish(agent.published(), len(times)):
            collector.weights.settle(wait=True)
            times.append(time.perf_counter() - begin)
    return median(times)


class Learner:
    """A learner whose generators are at work, or full and waiting."""

    def __init__(self, run: Run, collector: ProcessCollector, rehearsal: Rehearsal, device: torch.device) -> None:
        self.run, self.collector, self.rehearsal, self.device = run, collector, rehearsal, device
        self.rows = self.made = 0
        self.pending: deque[torch.cuda.Event] = deque()
        while not rehearsal.replay.ready(rehearsal.batch, rehearsal.length):
            self.take()

    def take(self) -> None:
        """Remember the next lot of every generator."""
        chunk = self.collector.collect(1)
        self.rehearsal.replay.add({key: rows[:-1] for key, rows in chunk.rows.items()})
        self.rows += chunk.rows["reward"][:-1].numel()

    def serve(self) -> None:
        """Take what all generators have ready, and publish what was learned."""
        if all(crew.pipe.poll() for crew in self.collector.crews):
            self.take()
        self.collector.publish(self.made)

    def updates_per_second(self, seconds: float, beside: Callable[[], None] = lambda: None) -> float:
        """Updates a second, with something done after each."""
        self.synchronize()
        begin, before = time.perf_counter(), self.made
        while time.perf_counter() - begin < seconds:
            self.rehearsal.update(self.run.agent)
            self.made += 1
            self.keep_pace()
            beside()
        self.synchronize()
        return (self.made - before) / (time.perf_counter() - begin)

    def keep_pace(self) -> None:
        """Wait until a GPU has only so many updates before it."""
        if self.device.type == "cuda":
            self.pending.append(torch.cuda.Event())
            self.pending[-1].record()
            if len(self.pending) > AHEAD:
                self.pending.popleft().synchronize()

    def synchronize(self) -> None:
        """Wait for a GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def learner_figures(case: str, count: int, words: argparse.Namespace) -> dict[str, float]:
    """What generators cost a learner."""
    config = config_of(case, count, words, words.learner)
    with closing(make_parts(config)) as parts:
        run = make_run(config, prepare(config, False), parts, False, quiet=True)
        assert isinstance(parts.collector, ProcessCollector) and run.rehearsal is not None
        learner = Learner(run, parts.collector, run.rehearsal, parts.device)
        for _ in range(WARMUP):
            run.rehearsal.update(run.agent)
        alone = learner.updates_per_second(words.seconds)
        learner.rows, begin = 0, time.perf_counter()
        beside = learner.updates_per_second(words.seconds, learner.serve)
        rows = learner.rows / (time.perf_counter() - begin)
        again = learner.updates_per_second(words.seconds)
        found = {"alone": (alone + again) / 2, "beside": beside, "rows": rows}
        found["publish_ms"] = 1000 * publication_seconds(parts.collector, parts.agent)
        run.logger.close()
    return found


def parsed() -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["atari", "dmc_proprio"], help="presets of Dreamers")
    parser.add_argument("--generators", nargs="+", type=int, default=[1, 2, 4, 8, 16], help="numbers to try")
    parser.add_argument("--envs", type=int, default=4, help="environments of each generator")
    parser.add_argument("--rows", type=int, default=16, help="rows that travel together")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each rate is measured")
    parser.add_argument("--device", default="cpu", help="where generators act")
    parser.add_argument("--learner", default="auto", help="where the learner learns; none leaves it out")
    parser.add_argument("--fast", default="graph", help="how updates run; auto compiles them, which takes a minute")
    parser.add_argument("--json", type=Path, help="where to leave the figures, each as soon as it is known")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    words = parsed()
    found: dict[str, Any] = {"cores": os.cpu_count(), "envs": words.envs, "acting on": words.device}
    with tempfile.TemporaryDirectory() as words.folder:
        for case in words.cases:
            found[case], seconds = acting_figures(case, words)
            fewest = min(words.generators)
            for count, rate in found[case].items():
                times = rate / found[case][fewest] * fewest
                print(f"{case:12} {count:3} generators {rate:8.0f} rows/s, {times:5.2f} times those of one", flush=True)
            found[case]["publish_ms"] = 1000 * seconds
            print(f"{case:12} weights published to {max(words.generators)} in {1000 * seconds:.1f} ms", flush=True)
            keep(found, words.json)
        if words.learner != "none":
            case, count = words.cases[0], max(words.generators)
            found["learner"] = seen = learner_figures(case, count, words)
            kept = 100 * seen["beside"] / seen["alone"]
            print(f"{case:12} learner {seen['alone']:.2f} updates/s alone, {seen['beside']:.2f} ({kept:.1f} %) while")
            print(f"{'':12} {count} generators bring {seen['rows']:.0f} rows/s")
            print(f"{'':12} weights published from there in {seen['publish_ms']:.1f} ms")
            keep(found, words.json)


def keep(found: dict[str, Any], path: Path | None) -> None:
    """Write down what is known so far."""
    if path:
        path.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
