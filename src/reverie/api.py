"""The Python interface: configure, train, resume, load, evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .actors import AgentKind
from .agents.base import Mode
from .build import make_parts, make_run
from .config import names, store
from .config.options import replaced, within
from .config.presets import DEFAULT, stacked
from .config.resolution import resolved
from .config.schema import Config
from .log.logger import Sink
from .nn import ranks
from .reopened import evaluated, make_player
from .tools.player import Player
from .training.checkpoint import find
from .training.device import device_of, of_rank
from .training.folder import check, prepare, withdrawn
from .training.lock import Lock
from .training.threads import lent


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    logdir: Path
    step: int
    episodes: int
    elapsed: float
    interrupted: bool
    idle: bool
    """Whether nothing was left to do: a resumed run whose budget is spent."""
    evaluation: dict[str, float]
    """Figures of the last evaluation: mean_return, median_return, min_return, max_return, mean_length, ..."""
    recent_return: float
    """Mean return of the last (up to 100) training episodes."""
    best_return: float


def configure(*presets: str, **options: Any) -> Config:
    """A configuration from presets and options, as the command line makes it.

    Dots in names of options are written as two underscores (`replay__ratio=32`); short names serve too. `task` may be
    a class or function instead of its name; worker processes and later commands import the program that defines it,
    which therefore trains under `if __name__ == "__main__":`.
    """
    values = {}
    for word, value in options.items():
        name = names.SHORT.get(word, word.replace("__", "."))
        if name == "task":
            value = names.place_of(value) if callable(value) else value
        values[name] = names.task_of(value) if word == "env_id" else value
    return resolved(presets, values)


def train(
    config: Config | None = None,
    *,
    resume: bool = False,
    quiet: bool = False,
    agent: AgentKind | None = None,
    sinks: Sequence[Sink] = (),
) -> Outcome:
    """Train as the configuration says (the default is a small Dreamer on CartPole) and say what was reached.

    `agent` makes an agent of your own, from observation space, action space, configuration and device: a class will do.
    `sinks` are written to beside those that the configuration names, and closed when the run ends.
    """
    config = store.with_logdir(config or stacked(DEFAULT))
    names.check_guard(config.task)
    with lent(), ranks.joined(device_of(config)):
        config, quiet = of_rank(config), quiet or ranks.number() > 0
        check(config, resume)
        parts = make_parts(config, agent)
        try:
            if ranks.number():
                ranks.wait()  # for the first process, in whose folder those of the others are
            with Lock(Path(config.logdir)):
                folder = prepare(config, resume)
                if not ranks.number():
                    ranks.wait()
                with withdrawn(config, resume) as counters:
                    run = make_run(config, folder, parts, resume, quiet, sinks if not ranks.number() else ())
                    counters.append(run.counters)
                    before = run.counters.step, run.counters.updates
                    with closing(run.logger):
                        run.train()
        finally:
            parts.close()
    return Outcome(
        logdir=folder,
        step=run.counters.step,
        episodes=run.counters.episodes,
        elapsed=run.counters.elapsed,
        interrupted=run.stop.raised,
        idle=before == (run.counters.step, run.counters.updates),
        evaluation=run.evaluation,
        recent_return=run.logger.meter.mean,
        best_return=run.best,
    )


def resume(
    logdir: str | Path, agent: AgentKind | None = None, *, quiet: bool = False, sinks: Sequence[Sink] = ()
) -> Outcome:
    """Continue the run in a folder; one of an agent or with sinks of your own needs them again."""
    return train(store.load_to_resume(Path(logdir)), resume=True, quiet=quiet, agent=agent, sinks=sinks)


def load(logdir: str | Path, checkpoint: str = "best", device: str = "cpu", agent: AgentKind | None = None) -> Player:
    """The agent of a run, ready to act: `action = agent.act(observation)`; one of your own needs `agent` again."""
    folder = Path(logdir)
    config = replaced(store.load(folder), {"device": device})
    return make_player(config, find(folder, checkpoint), kind=agent)


def evaluate(
    logdir: str | Path,
    episodes: int = 10,
    checkpoint: str = "best",
    *,
    stochastic: bool = False,
    seed: int = 0,
    device: str = "auto",
    agent: AgentKind | None = None,
) -> dict[str, float | None]:
    """Figures of episodes that the agent of a run plays, as `reverie eval --json` prints them: mean_return, ..."""
    folder = Path(logdir)
    config = replaced(store.load(folder), {"device": device})
    mode: Mode = "sample" if stochastic else "eval"
    return evaluated(config, find(folder, checkpoint), within("episodes", episodes), mode, seed, agent)
