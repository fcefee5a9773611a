"""The command `reverie`: what each word after it calls."""

from __future__ import annotations

import errno
import json
import logging
import sys
from collections.abc import Callable
from contextlib import redirect_stdout

from .commands.learning import launch, sweep, train
from .commands.looking import dream, evaluate, export, play, plot
from .config import owners
from .config.arguments import parse_bench, parse_envs
from .config.errors import UserError, nearest
from .config.options import replaced
from .config.presets import stacked
from .config.resolution import resolved


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


def envs(words: list[str]) -> int:
    """List the suites, or check a task."""
    arguments, values = parse_envs(words)
    from .tools.suites import check_task, suites_table

    if arguments.check:
        one = {"task": arguments.check, "imports": arguments.imports, "envs.count": 1, "envs.backend": "serial"}
        owners.warn_of_other_suites(values, arguments.check)
        print(check_task(replaced(stacked(arguments.configs), one | values)))
    else:
        print(suites_table())
    return 0


def bench(words: list[str]) -> int:
    """Measure how fast a part of training is."""
    subject, arguments, values = parse_bench(words)
    config = resolved(arguments.configs, values)
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
