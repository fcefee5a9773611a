"""Commands that learn: `train`, `launch` and `sweep`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from ..config import store
from ..config.arguments import TrainArguments, parse_sweep, parse_train
from ..config.errors import UserError
from ..config.presets import stacked
from ..config.resolution import resolved
from ..config.schema import Config


def train(words: list[str]) -> int:
    """Train an agent and say what was reached."""
    config, resume = resolve(words)
    from ..api import train as run_training

    outcome = run_training(config, resume=resume)
    if os.environ.get("RANK", "0") != "0":  # torchrun's other processes leave the word to the first
        return 0
    logdir = shlex.quote(str(outcome.logdir))
    print()
    if outcome.interrupted:
        print(f"Stopped at step {outcome.step:,} and saved.\n")
        launched = config.run.eval_apart and config.collect.mode != "inline"
        print(f"Continue:   {program('reverie')} {'launch' if launched else 'train'} --resume --logdir {logdir}")
        return 0
    print(f"Trained for {outcome.step:,} steps and {outcome.episodes:,} episodes in {outcome.elapsed:.0f} s.")
    if outcome.step < config.run.steps:
        goals = " ".join(f"--run.{name} none" for name in ("goal", "stop_at") if getattr(config.run, name) is not None)
        print("It ended early, as its goal is reached.")
        print(f"Train it on:     {program('reverie')} train --resume --logdir {logdir} {goals}")
    elif outcome.idle:
        print(f"Nothing was left to do of its budget of {config.run.steps:,} steps: give more with --run.steps.")
    if outcome.episodes:
        print(f"Mean return of the last {min(100, outcome.episodes)} training episodes: {outcome.recent_return:.1f}")
    if outcome.evaluation:
        last, best = outcome.evaluation["mean_return"], outcome.best_return
        print(f"Mean return of the last evaluation: {last:.1f}, of the best: {best:.1f}")
    print(f"\nWatch it play:   {program('reverie')} play --logdir {logdir}  (add --save-gif for GIFs)")
    if config.agent.name == "dreamer":
        print(f"See it dream:    {program('reverie')} dream --logdir {logdir}")
    print(f"Its curves:      {program('tensorboard')} --logdir {logdir}")
    if any(outcome.logdir.glob("videos/*.gif")):
        print(f"GIFs of its way: {logdir}/videos")
    return 0


def launch(words: list[str]) -> int:
    """Train with generators and an evaluator in processes of their own."""
    arguments, values = parse_train(words)
    if stacked(arguments.configs, stored_of(arguments, values)).collect.mode == "inline":
        words = ["--collect.mode", "process", *words]
    config, _ = resolve(words)
    from ..tools.launch import Team
    from ..training.lock import in_use

    logdir = store.with_logdir(config).logdir
    reverie = [sys.executable, "-m", "reverie"]
    learner = [*reverie, "train", *words, "--logdir", logdir, "--run.eval_apart", "True"]
    evaluator = [*reverie, "eval", "--follow", "--logdir", logdir, "--device", "cpu"]
    evaluates = config.run.eval_every or config.run.eval_at_end
    team = Team(lambda name, line: print(f"[{name}] {line}", flush=True))
    return team.lead(learner, evaluator if evaluates else [], lambda: in_use(Path(logdir)))


def sweep(words: list[str]) -> int:
    """Train with many settings and say which are best."""
    arguments, given, values = parse_sweep(words)
    from ..tools import plan as plans

    resume = arguments.resume
    plan = plans.resumed(given, values) if resume else plans.new(arguments, resolved(arguments.configs, values))
    from ..tools.sweep import Sweep, open_search
    from ..tools.sweep_report import report

    search = open_search(plan)
    print(f"{plan.folder}: {plan.arguments.trials} trials", flush=True)
    worker = Sweep(plan, search, lambda line: print(line, flush=True))
    worker.run()
    print("\n".join(["", *report(plan, search.trials(), search.study, program("reverie"))]))
    if worker.stop.raised:
        print(f"Go on:           {program('reverie')} sweep --resume --logdir {shlex.quote(str(plan.folder))}")
    return 0


def program(name: str) -> str:
    """How to call a program of this environment from here: by its name if the shell finds it, else by its path."""
    beside = Path(sys.executable).parent / name
    if shutil.which(name) or not beside.exists():
        return name
    return shlex.quote(os.path.relpath(beside))


def resolve(words: list[str]) -> tuple[Config, bool]:
    """The configuration that the words of `train` make, and whether to resume."""
    arguments, values = parse_train(words)
    return resolved(arguments.configs, values, stored_of(arguments, values)), arguments.resume


def stored_of(arguments: TrainArguments, values: dict[str, Any]) -> Config | None:
    """The configuration of the run to resume; None for a new one."""
    if not arguments.resume:
        return None
    if not values.get("logdir"):
        raise UserError("--resume needs --logdir: the folder of the run to continue")
    return store.load_to_resume(Path(values["logdir"]))
