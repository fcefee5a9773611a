"""The command `reverie`: parse, build, call."""

from __future__ import annotations

import errno
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal

from .config import names, owners, store
from .config.arguments import (
    DreamArguments,
    EvalArguments,
    ExportArguments,
    PlayArguments,
    parse,
    parse_bench,
    parse_envs,
    parse_plot,
    parse_sweep,
    parse_train,
)
from .config.errors import UserError, nearest
from .config.options import replaced
from .config.presets import DEFAULT, stacked
from .config.schema import Config


def main(words: list[str] | None = None) -> None:
    """Run the command and exit; errors meant for people are one line and status 2."""
    logging.basicConfig(format="reverie: %(message)s", level=logging.WARNING)
    try:
        sys.exit(run(sys.argv[1:] if words is None else words))
    except UserError as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        fail(f"cannot write {error.filename or 'a file'}: {error.strerror}; free some space or use another --logdir")


def fail(line: str) -> None:
    """Print one line and exit with status 2."""
    print("reverie: " + " ".join(line.split()), file=sys.stderr)
    sys.exit(2)


def run(words: list[str]) -> int:
    """Call the command that the words name."""
    if not words or words[0] in ("-h", "--help", "help"):
        from .tools.help import overview

        print(overview({name: about for name, (_, about) in COMMANDS.items()}))
        return 0
    if words[0] in ("-V", "--version", "version"):
        from . import __version__

        print(f"reverie {__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise UserError(f"unknown command {words[0]!r}: {nearest(words[0], COMMANDS)}")
    command, about = COMMANDS[words[0]]
    if any(word in ("-h", "--help") for word in words[1:]):
        from .tools.help import command_help

        print(command_help(words[0], about))
        return 0
    return command(words[1:])


def train(words: list[str]) -> int:
    """Train an agent and say what was reached."""
    config, resume = resolve(words)
    from .api import train as run_training

    outcome = run_training(config, resume=resume)
    if os.environ.get("RANK", "0") != "0":  # torchrun's other processes leave the word to the first
        return 0
    logdir = shlex.quote(str(outcome.logdir))
    print()
    if outcome.interrupted:
        print(f"Stopped at step {outcome.step:,} and saved.\n")
        print(f"Continue:   {program('reverie')} train --resume --logdir {logdir}")
        return 0
    print(f"Trained for {outcome.step:,} steps and {outcome.episodes:,} episodes in {outcome.elapsed:.0f} s.")
    if outcome.step < config.run.steps:
        print("It ended early: its goal is reached (--run.goal, --run.stop_at; none goes on).")
    if outcome.episodes:
        print(f"Return of the last training episodes: {outcome.recent_return:.1f}")
    if outcome.evaluation:
        last, best = outcome.evaluation["mean_return"], outcome.best_return
        print(f"Return of the last evaluation: {last:.1f}, of the best: {best:.1f}")
    print(f"\nWatch it play:   {program('reverie')} play --logdir {logdir}  (add --save-gif for GIFs)")
    if config.agent.name == "dreamer":
        print(f"See it dream:    {program('reverie')} dream --logdir {logdir}")
    print(f"Its curves:      {program('tensorboard')} --logdir {logdir}")
    if any(outcome.logdir.glob("videos/*.gif")):
        print(f"GIFs of its way: {logdir}/videos")
    return 0


def launch(words: list[str]) -> int:
    """Train with generators and an evaluator in processes of their own."""
    words = ["--collect.mode", "process", *words]
    config, _ = resolve(words)
    from .build import with_logdir
    from .tools.launch import Team
    from .training.folder import in_use

    logdir = with_logdir(config).logdir
    reverie = [sys.executable, "-m", __package__]
    learner = [*reverie, "train", *words, "--logdir", logdir, "--run.eval_apart", "True"]
    evaluator = [*reverie, "eval", "--follow", "--logdir", logdir, "--device", "cpu"]
    evaluates = config.run.eval_every or config.run.eval_at_end
    team = Team(lambda name, line: print(f"[{name}] {line}", flush=True))
    return team.lead(learner, evaluator if evaluates else [], lambda: in_use(Path(logdir)))


def program(name: str) -> str:
    """How to call a program of this environment from here: by its name if the shell finds it, else by its path."""
    beside = Path(sys.executable).parent / name
    if shutil.which(name) or not beside.exists():
        return name
    return shlex.quote(os.path.relpath(beside))


def resolve(words: list[str]) -> tuple[Config, bool]:
    """The configuration that the words of `train` make, and whether to resume."""
    arguments, values = parse_train(words)
    if not arguments.resume:
        return configured(arguments.configs, values), False
    if not values.get("logdir"):
        raise UserError("--resume needs --logdir: the folder of the run to continue")
    return configured(arguments.configs, values, store.load(Path(values["logdir"]))), True


def configured(presets: tuple[str, ...], values: dict[str, Any], stored: Config | None = None) -> Config:
    """The configuration that presets and options make, over a stored one if there is one, else over the default."""
    base = stacked(presets or (() if stored or "task" in values else DEFAULT), stored)
    given = names.spelled_out(values, values.get("agent.name", base.agent.name))
    config = replaced(base, given)
    owners.check_presets(presets, config)
    owners.warn_of_idle(given, config)
    return config


def evaluate(words: list[str]) -> int:
    """Evaluate the agent of a run."""
    arguments = parse(words, EvalArguments)
    config = stored_config(arguments.logdir, arguments.device)
    if arguments.follow:
        from .follow import follow

        for step, figures, best in follow(config, Path(arguments.logdir)):
            print(f"step {step:,}: mean return {figures['mean_return']:.1f}{', the best' if best else ''}", flush=True)
        return 0
    from .reopened import evaluate_checkpoint
    from .training.checkpoint import find

    file = find(Path(arguments.logdir), arguments.checkpoint)
    episodes, seed = arguments.episodes, arguments.seed
    summary = evaluate_checkpoint(config, file, episodes, "sample" if arguments.stochastic else "eval", seed).summary()
    told = {"success_rate": None, **summary, "episodes": int(summary["episodes"])}
    if arguments.json:
        print(json.dumps(told))
        return 0
    for name, value in told.items():
        if value is not None:
            print(f"{name:14} {value:,.2f}" if isinstance(value, float) else f"{name:14} {value}")
    return 0


def play(words: list[str]) -> int:
    """Play episodes in a window or into GIFs."""
    arguments = parse(words, PlayArguments)
    config = stored_config(arguments.logdir, arguments.device)
    from .reopened import make_player, make_task_env
    from .tools.play import Show, open_screen, save_gif
    from .tools.play import play as episodes_of
    from .training.checkpoint import find

    file = find(Path(arguments.logdir), arguments.checkpoint)
    folder = Path(arguments.gif_dir or Path(arguments.logdir) / "gifs")
    show = Show(open_screen(arguments.gif_fps), arguments.save_gif, arguments.overlay)
    scores = []
    with make_task_env(config) as env, show:
        player = make_player(config, file, env)
        for episode in episodes_of(player, env, arguments.episodes, arguments.seed, arguments.stochastic, show):
            success = "" if episode.success is None else ("  success" if episode.success else "  no success")
            print(f"episode {episode.number}: return {episode.score:.1f}, {episode.length} steps{success}", flush=True)
            scores.append(episode.score)
            if arguments.save_gif:
                print(f"  {save_gif(episode, folder, arguments.gif_fps) or 'this environment shows no pictures'}")
    if scores:
        print(f"mean return {sum(scores) / len(scores):.1f} over {len(scores)} episodes")
    if show.screen is None and not arguments.save_gif:
        print("No screen here to show it on: add --save-gif to get GIFs.")
    return 0


def dream(words: list[str]) -> int:
    """Show what the world model of a run predicts."""
    arguments = parse(words, DreamArguments)
    config = stored_config(arguments.logdir, arguments.device)
    from .reopened import dream_checkpoint
    from .tools.dream import Stretch, figures, save_gifs
    from .training.checkpoint import find

    file = find(Path(arguments.logdir), arguments.checkpoint)
    if arguments.web:
        return dream_page(config, file, arguments)
    stretch = Stretch(arguments.start, arguments.length, arguments.context)
    dreams, step = dream_checkpoint(
        config, file, arguments.episodes, stretch, "sample" if arguments.stochastic else "eval", arguments.seed
    )
    print(f"Errors of what was not seen, at step {step:,} of training (0 is perfect, 1 no better than the mean):")
    for name, value in figures(dreams).items():
        print(f"  {name:26} {value:.3f}")
    if arguments.save_gif:
        folder = Path(arguments.gif_dir or Path(arguments.logdir) / "gifs")
        for path in save_gifs(dreams, folder, f"{file.stem}_{step:09d}", arguments.gif_fps):
            print(path)
    return 0


def dream_page(config: Config, file: Path, arguments: DreamArguments) -> int:
    """Let a person play inside the dream of a run, on a page in the browser."""
    from .reopened import lucid_dream
    from .tools.web import serve

    def opened(address: str) -> None:
        print(f"Dream at {address}\nOpen it in a browser on this machine; Ctrl-C ends it.", flush=True)

    mode: Literal["sample", "eval"] = "sample" if arguments.stochastic else "eval"
    with lucid_dream(config, file, arguments.context, mode, arguments.seed) as stage:
        serve(stage, arguments.port, opened)
    print("\nThe dream has ended.")
    return 0


def export(words: list[str]) -> int:
    """Write the acting step of a run's agent into a file."""
    arguments = parse(words, ExportArguments)
    config = stored_config(arguments.logdir, "cpu")
    if not arguments.out:
        raise UserError("--out is missing: the file to write, .onnx or .pt2")
    from .reopened import export_checkpoint
    from .tools.export import summary
    from .training.checkpoint import find

    file, out = find(Path(arguments.logdir), arguments.checkpoint), Path(arguments.out)
    print(summary(export_checkpoint(config, file, out, arguments.stochastic)))
    print(f"\n{out}: {out.stat().st_size / 1e6:.1f} MB, all of the above inside")
    return 0


def plot(words: list[str]) -> int:
    """Draw learning curves."""
    arguments = parse_plot(words)
    from .tools import panels, records
    from .tools import plot as drawing

    runs = records.records(arguments.logdir)
    if arguments.metric == "list":
        print("\n".join(sorted(set().union(*(run.metrics for run in runs)))))
        return 0
    path = drawing.checked(arguments.out)
    chart = panels.chart(runs, arguments)
    drawing.save(drawing.draw(chart, arguments), path)
    for note in chart.notes:
        print(f"reverie: {note}", file=sys.stderr)
    print("\n".join([f"{chart.metric}:", *(f"  {line}" for line in panels.summary(chart, arguments.x)), str(path)]))
    return 0


def sweep(words: list[str]) -> int:
    """Train with many settings and say which are best."""
    arguments, given, values = parse_sweep(words)
    from .tools import plan as plans

    resume = arguments.resume
    plan = plans.resumed(given, values) if resume else plans.new(arguments, configured(arguments.configs, values))
    from .tools.sweep import Sweep, open_search
    from .tools.sweep_report import report

    search = open_search(plan)
    print(f"{plan.folder}: {plan.arguments.trials} trials", flush=True)
    worker = Sweep(plan, search, lambda line: print(line, flush=True))
    worker.run()
    print("\n".join(["", *report(plan, search.trials(), search.study)]))
    if worker.stop.raised:
        print(f"Go on:           {program('reverie')} sweep --resume --logdir {shlex.quote(str(plan.folder))}")
    return 0


def stored_config(logdir: str, device: str) -> Config:
    """The configuration of the run in a folder, on the device asked for."""
    if not logdir:
        raise UserError("--logdir is missing: the folder of a run")
    return replaced(store.load(Path(logdir)), {"device": device})


def envs(words: list[str]) -> int:
    """List the suites, or check a task."""
    arguments, values = parse_envs(words)
    from .tools.suites import check_task, suites_table

    if arguments.check:
        one = {"task": arguments.check, "imports": arguments.imports, "envs.count": 1, "envs.backend": "serial"}
        print(check_task(replaced(stacked(arguments.configs), one | values)))
    else:
        print(suites_table())
    return 0


def bench(words: list[str]) -> int:
    """Measure how fast a part of training is."""
    subject, arguments, values = parse_bench(words)
    config = configured(arguments.configs, values)
    owners.check_subject(subject, config, arguments.parts)
    from .bench import measured
    from .tools.bench_table import table

    with redirect_stdout(sys.stderr):  # what an environment prints is no part of the figures
        report = measured(subject, config, arguments)
    print(json.dumps(report) if arguments.json else table(report))
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "train": (train, "train an agent"),
    "launch": (launch, "train with generators and an evaluator in processes of their own"),
    "eval": (evaluate, "evaluate the agent of a run"),
    "play": (play, "watch the agent of a run, in a window or as GIFs"),
    "dream": (dream, "see what the world model of a run predicts: as a GIF, or on a page to play in (--web)"),
    "export": (export, "write what it takes to act into an ONNX or torch file for other programs"),
    "plot": (plot, "draw learning curves of runs, seeds as a band, beside published scores"),
    "sweep": (sweep, "search settings, or try all of a grid: many runs, compared"),
    "envs": (envs, "list the environment suites, or check a task"),
    "bench": (bench, "measure how fast a part of training is, or all of it"),
}
