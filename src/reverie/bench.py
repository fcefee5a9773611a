"""What `reverie bench` measures: parts of training as a configuration makes them, each by itself or all together."""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .agents.base import Agent
from .agents.dreamer import Dreamer
from .build import Parts, make_agent, make_parts, make_rehearsal, make_run, make_stream
from .collect.collector import playable
from .config.arguments import BenchArguments
from .config.errors import UserError
from .config.schema import Config
from .data.rows import Batch
from .data.storage import bytes_needed, bytes_per_step
from .envs.checks import STEPS
from .envs.registry import find, frames_per_step, import_modules
from .nn.graph import WARMUP
from .tools.bench import Stopwatch, Timing, device_name, flops_of, forget_peak, peak_bytes, product_rate
from .tools.bench_parts import anatomy
from .tools.bench_rows import ACTIONS, Fiction, drawn_actions
from .training.device import device_of
from .training.folder import prepare
from .training.opening import weights

Report = dict[str, Any]
"""Figures by name, as `--json` prints them."""

FILLED = 10_000
"""Steps that a replay is filled with before it is measured, if it holds as many."""

ENDLESS = 10**12
"""A budget in steps that no measurement spends."""


@dataclass(frozen=True)
class Bench:
    """What a measurement is made with."""

    config: Config
    arguments: BenchArguments
    folder: Path
    """A folder that is gone afterwards."""
    device: torch.device

    @property
    def watch(self) -> Stopwatch:
        """The stopwatch that the arguments ask for."""
        return Stopwatch(self.device, self.arguments.repeats, self.arguments.seconds)

    @property
    def plain(self) -> bool:
        """Whether updates run plainly, as operations that can be counted."""
        return self.config.run.fast == "off"

    @property
    def warmup(self) -> int:
        """Calls until a function of the agent runs at full speed."""
        return WARMUP + 1 if self.device.type == "cuda" or self.config.run.fast in ("compile", "shared") else 1

    def parts(self) -> tuple[Parts, Fiction]:
        """The agent and what belongs to it, its environments closed again; and rows to feed it with."""
        parts = make_parts(self.config)
        parts.close()
        return parts, Fiction(parts.agent, *parts.stream.spaces, self.config.envs.count, parts.device)

    def seen(self, timing: Timing, warmup: float) -> Report:
        """What is told of every measurement; the peak of the memory is that of everything until now."""
        return {"spread": timing.spread, "warmup_seconds": warmup, "peak_bytes": peak_bytes(self.device)}

    def computed(self, seconds: float, flops: int) -> Report:
        """What an update of so many seconds computes, beside what the device could."""
        reached, most = flops / seconds, product_rate(self.watch.shorter(0.2))
        return {
            "flops": flops,
            "flops_per_second": reached,
            "device_flops_per_second": most,
            "device_share": reached / most,
        }


def measured(subject: str, config: Config, arguments: BenchArguments) -> Report:
    """The figures of one subject."""
    where = config.logdir or None
    if where and not Path(where).is_dir():
        raise UserError(f"--logdir {where} is no folder: bench keeps its files in a folder in there while it measures")
    device = torch.device("cpu") if subject == "envs" else device_of(config)
    forget_peak(device)
    with tempfile.TemporaryDirectory(prefix="reverie-bench-", dir=where) as folder:
        bench = Bench(unattended(config, folder), arguments, Path(folder), device)
        figures = SUBJECTS[subject](bench)
    about: Report = {"subject": subject, "agent": config.agent.name, "task": config.task, "device": device.type}
    about |= {"device_name": device_name(device), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return about | figures


def unattended(config: Config, folder: str) -> Config:
    """The configuration without evaluation, end or logs elsewhere, in a folder of its own; it compiles first."""
    run = replace(config.run, steps=ENDLESS, eval_every=0, eval_at_end=False, save_every=0, stop_at=None, goal=None)
    run = replace(run, compilers=0)
    log = replace(config.log, mlflow=False, wandb=False)
    return replace(config, logdir=folder, run=run, log=log)


def learner(bench: Bench) -> Report:
    """Updates on replayed windows, with sampling and write-back."""
    if bench.config.agent.name == "ppo":
        return ppo(bench)
    watch, config = bench.watch, bench.config
    parts, fiction = bench.parts()
    agent, storage = parts.agent, parts.storage
    assert isinstance(agent, Dreamer) and storage is not None
    rehearsal = make_rehearsal(config, bench.folder, parts.device, storage)
    fiction.fill(rehearsal.replay, FILLED, config.replay.batch, rehearsal.length)
    warmup = watch.block(lambda: rehearsal.update(agent), bench.warmup)
    timing = watch.measure(lambda: rehearsal.update(agent))
    report: Report = {"updates_per_second": timing.rate, "update_ms": timing.milliseconds}
    report |= bench.seen(timing, warmup) | {"storage": storage, "parameters": weights(agent)}
    if bench.arguments.parts:
        report["parts"] = anatomy(agent, rehearsal, watch, timing.milliseconds)
    batch = rehearsal.replay.sample(config.replay.batch, rehearsal.length)
    plain = agent if bench.plain else plain_agent(bench, parts)
    return report | bench.computed(timing.median, flops_of(lambda: plain.learn_replay(batch)))


def plain_agent(bench: Bench, parts: Parts) -> Agent:
    """The same agent, neither compiled nor captured, whose operations can be counted."""
    config = replace(bench.config, run=replace(bench.config.run, fast="off"))
    return make_agent(config, *parts.stream.spaces, parts.device)


def ppo(bench: Bench) -> Report:
    """Rounds of learning from a rollout, with all of their epochs."""
    # made-up rows say nothing about when the policy has moved far enough
    bench = replace(bench, config=replace(bench.config, ppo=replace(bench.config.ppo, target_kl=0.0)))
    watch, (parts, fiction) = bench.watch, bench.parts()
    agent, count = parts.agent, 0
    rows = fiction.played(agent.rollout + 1)

    def learn() -> None:
        nonlocal count
        count = agent.learn_rollout(rows).updates

    warmup = watch.block(learn, bench.warmup)
    timing = watch.measure(learn)
    report = {
        "updates_per_second": count * timing.rate,
        "update_ms": timing.milliseconds / count,
        "rounds_per_second": timing.rate,
        "round_ms": timing.milliseconds,
        "samples_per_second": agent.rollout * fiction.envs * timing.rate,
        "parameters": weights(agent),
    } | bench.seen(timing, warmup)
    plain = agent if bench.plain else plain_agent(bench, parts)
    return report | bench.computed(timing.median / count, round(flops_of(lambda: plain.learn_rollout(rows)) / count))


def replay(bench: Bench) -> Report:
    """Adding rows, sampling windows, writing back."""
    watch, config = bench.watch, bench.config
    parts, fiction = bench.parts()
    assert parts.storage is not None
    rehearsal = make_rehearsal(config, bench.folder, parts.device, parts.storage)
    held, batch, length = rehearsal.replay, config.replay.batch, rehearsal.length
    warmup = watch.block(lambda: fiction.fill(held, FILLED, batch, length), 1)
    row, windows = fiction.rows(1), held.sample(batch, length)
    values: Batch = {name: windows[name] for name in ("deter", "stoch") if name in windows}
    if config.replay.prioritised:
        values["priority"] = torch.rand(batch, length, device=parts.device)
    sampling = watch.measure(lambda: held.sample(batch, length))
    writing = watch.measure(lambda: held.update(windows["index"], values))
    adding = watch.measure(lambda: held.add(row))
    return {
        "added_per_second": fiction.envs * adding.rate,
        "batches_per_second": sampling.rate,
        "windows_per_second": batch * sampling.rate,
        "sample_ms": sampling.milliseconds,
        "writebacks_per_second": writing.rate,
        "writeback_ms": writing.milliseconds,
        "bytes_per_step": bytes_per_step(fiction.layout),
        "replay_bytes": bytes_needed(fiction.layout, config.replay.capacity, fiction.envs),
        "storage": parts.storage,
    } | bench.seen(sampling, warmup)


def envs(bench: Bench) -> Report:
    """Environments alone, played at random."""
    config = bench.config
    import_modules(config.imports)
    find(config.task)
    start = time.perf_counter()
    with closing(make_stream(config)) as stream:
        stream.begin()
        drawn = drawn_actions(stream.action_space, ACTIONS * stream.count)
        actions = itertools.cycle(drawn.reshape(ACTIONS, stream.count, *drawn.shape[1:]))
        taken = 0

        def step() -> None:
            nonlocal taken
            taken += stream.count - int(stream.step(next(actions))["is_first"].sum())

        for _ in range(STEPS if config.envs.checks else 1):  # checks take time that later steps do not
            step()
        warmup, taken = time.perf_counter() - start, 0
        timing = bench.watch.measure(step)
        rate = taken / timing.calls * timing.rate
        return {
            "steps_per_second": rate,
            "steps_per_second_each": rate / stream.count,
            "frames_per_second": rate * frames_per_step(config.task, config.env),
            "step_ms": timing.milliseconds,
            "environments": stream.count,
            "backend": type(stream.vector).__name__,
        } | bench.seen(timing, warmup)


def act(bench: Bench) -> Report:
    """The agent acting, from rows on its device to actions that environments take."""
    # random actions at the beginning of a run would be drawn besides
    bench = replace(bench, config=replace(bench.config, replay=replace(bench.config.replay, prefill=0)))
    parts, fiction = bench.parts()
    agent, space, watch = parts.agent, parts.stream.action_space, bench.watch
    row = {name: value[0] for name, value in fiction.rows(1).items()}
    carry = agent.initial_carry(fiction.envs)

    def call() -> None:
        nonlocal carry
        added, carry = agent.act(row, carry, "train")
        playable(added["action"], space)

    warmup = watch.block(call, bench.warmup)
    timing = watch.measure(call)
    return {
        "calls_per_second": timing.rate,
        "steps_per_second": fiction.envs * timing.rate,
        "call_ms": timing.milliseconds,
        "environments": fiction.envs,
        "parameters": weights(agent),
    } | bench.seen(timing, warmup)


def end_to_end(bench: Bench) -> Report:
    """Training as it is: collecting, learning, the replay and the log."""
    config = bench.config
    with closing(make_parts(config)) as parts:
        rounds = rounds_of_update(config, parts.agent.rollout)
        run = make_run(config, prepare(config, False), parts, False, quiet=True)
        counters = run.counters

        def step() -> None:
            for _ in range(rounds):
                before = counters.step
                run.round()
                run.log(before)

        with closing(run.logger):
            warmup = bench.watch.block(step, 1)
            while config.agent.name != "random" and (run.rehearsal or counters).updates < bench.warmup:
                warmup += bench.watch.block(step, 1)
            before = replace(counters)
            timing = bench.watch.measure(step)
        each = timing.rate / timing.calls
        return {
            "steps_per_second": (counters.step - before.step) * each,
            "frames_per_second": (counters.frames - before.frames) * each,
            "updates_per_second": (counters.updates - before.updates) * each,
            "environments": parts.stream.count,
            "parameters": weights(parts.agent),
        } | bench.seen(timing, warmup)


def rounds_of_update(config: Config, rollout: int) -> int:
    """The rounds in which a Dreamer makes an update or more, which are timed together; one round of other agents."""
    if config.agent.name != "dreamer":
        return 1
    if not config.replay.ratio:
        raise UserError("--replay.ratio 0 makes no updates to measure: give more, or bench act and bench envs")
    steps = max(config.replay.batch * config.replay.length / config.replay.ratio, config.replay.train_every)
    return math.ceil(steps / (config.envs.count * rollout))


SUBJECTS: dict[str, Callable[[Bench], Report]] = {
    "learner": learner,
    "replay": replay,
    "envs": envs,
    "act": act,
    "ppo": ppo,
    "end-to-end": end_to_end,
}
