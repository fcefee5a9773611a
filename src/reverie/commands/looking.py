"""Commands that look at runs: `eval`, `play`, `dream`, `export` and `plot`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

from ..config import store
from ..config.arguments import DreamArguments, EvalArguments, ExportArguments, PlayArguments, parse, parse_plot
from ..config.errors import UserError
from ..config.options import replaced
from ..config.schema import Config


def evaluate(words: list[str]) -> int:
    """Evaluate the agent of a run."""
    arguments = parse(words, EvalArguments)
    config = stored_config(arguments.logdir, arguments.device, arguments.explorer)
    if arguments.follow:
        if not config.run.eval_apart:
            raise UserError(f"--follow: the run in {arguments.logdir} evaluates itself; leave out --follow")
        from ..follow import follow

        for step, figures, best in follow(config, Path(arguments.logdir)):
            print(f"step {step:,}: mean return {figures['mean_return']:.1f}{', the best' if best else ''}", flush=True)
        return 0
    from ..reopened import evaluated
    from ..training.checkpoint import find

    file = find(Path(arguments.logdir), arguments.checkpoint)
    told = evaluated(config, file, arguments.episodes, "sample" if arguments.stochastic else "eval", arguments.seed)
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
    config = stored_config(arguments.logdir, arguments.device, arguments.explorer)
    from ..reopened import make_player, make_task_env
    from ..tools.play import Show, open_screen, save_gif
    from ..tools.play import play as episodes_of
    from ..training.checkpoint import find

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
        print(f"mean return {sum(scores) / len(scores):.1f} over {len(scores)} episode{'s' * (len(scores) > 1)}")
    if show.screen is None and not arguments.save_gif:
        print("No screen here to show it on: add --save-gif to get GIFs.")
    return 0


def dream(words: list[str]) -> int:
    """Show what the world model of a run predicts."""
    arguments = parse(words, DreamArguments)
    config = stored_config(arguments.logdir, arguments.device)
    from ..reopened import dream_checkpoint
    from ..tools.dream import Stretch, figures, save_gifs
    from ..training.checkpoint import find

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
    from ..reopened import lucid_dream
    from ..tools.web import serve

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
    from ..reopened import export_checkpoint
    from ..tools.export import summary
    from ..training.checkpoint import find

    file, out = find(Path(arguments.logdir), arguments.checkpoint), Path(arguments.out)
    print(summary(export_checkpoint(config, file, out, arguments.stochastic)))
    print(f"\n{out}: {out.stat().st_size / 1e6:.1f} MB, all of the above inside")
    return 0


def plot(words: list[str]) -> int:
    """Draw learning curves."""
    arguments = parse_plot(words)
    from ..tools import panels, records
    from ..tools import plot as drawing

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


def stored_config(logdir: str, device: str, explorer: bool = False) -> Config:
    """The configuration of the run in a folder, on the device asked for, with its explorer shown if that is wanted."""
    if not logdir:
        raise UserError("--logdir is missing: the folder of a run")
    config = store.load(Path(logdir))
    if explorer and not config.explore.intrinsic:
        raise UserError(f"--explorer: the run in {logdir} has none; train one with --configs dreamer_v3 plan2explore")
    return replaced(config, {"device": device} | ({"explore.show": True} if explorer else {}))
