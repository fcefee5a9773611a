"""The training loop, the same for every agent: collect, learn, log, evaluate, save."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..agents.base import Agent, Learned, Mode
from ..collect.collector import Source
from ..config.errors import UserError
from ..config.schema import RunConfig
from ..data.counters import Counters
from ..log.dreams import COLUMNS, FPS, film, scenes
from ..log.logger import Logger
from ..log.video import reel
from ..nn import ranks
from . import checkpoint
from .evaluate import Evaluator
from .interrupt import Interrupt
from .rehearsal import Rehearsal
from .skips import Skips
from .threads import settled

ADVICE = "lower --ppo.lr, or take --ppo.normalize_observation True or --ppo.normalize_reward True"

LOG = logging.getLogger("reverie")


@dataclass
class Run:
    """Everything a run consists of, and where it stands."""

    folder: Path
    config: RunConfig
    agent: Agent
    collector: Source
    evaluator: Evaluator | None
    logger: Logger
    counters: Counters
    rehearsal: Rehearsal | None = None
    frames_per_step: int = 1
    log_every: int = 0
    best: float = float("-inf")
    evaluated: int = 0
    """The step of the last evaluation."""
    evaluation: dict[str, float] = field(default_factory=dict)
    stop: Interrupt = field(default_factory=Interrupt)
    written: float = 0.0

    def __post_init__(self) -> None:
        self.skips = Skips(self.folder, "rounds", ADVICE, dumps=1)

    def train(self) -> None:
        """Train until the budget is spent, the goal is reached or someone interrupts; save at the end in any case."""
        self.logger.start(self.counters)
        with self.stop, settled():
            self.evaluate()  # one that an interruption has left due
            while not self.over():
                step = self.counters.step
                self.round()
                self.counters.elapsed = self.logger.elapsed
                self.log(step, evaluated=self.evaluate())
                if crossed(step, self.counters.step, self.config.save_every) and not self.finished:
                    self.save("latest")
            self.conclude()
            self.save("latest")

    def round(self) -> None:
        """Collect one chunk of rows and learn from it."""
        self.agent.schedule(self.counters.progress)
        if not self.caught_up():
            return
        chunk = self.collector.collect(self.agent.rollout)
        steps = int(ranks.sums([chunk.steps], self.agent.generator.device)[0])
        self.counters.step += steps
        self.counters.frames += steps * self.frames_per_step
        self.counters.episodes += sum(not episode.broken for episode in chunk.episodes)
        self.logger.episodes(chunk.episodes)
        self.logger.add(chunk.metrics)
        self.learned(self.agent.learn_rollout(chunk.rows))
        if self.rehearsal is None and (failed := self.agent.failures()) is not None:
            self.skips.look(int(failed), lambda: chunk.rows, self.counters.updates)
        for learned in self.rehearsal.learn(self.agent, chunk, steps) if self.rehearsal else ():
            self.learned(learned)
        self.collector.publish(self.counters.updates)

    def caught_up(self) -> bool:
        """Make the updates that the agent owes before anything else; whether none is left, if nobody interrupts."""
        while self.agent.owed and self.rehearsal is not None and self.rehearsal.started:
            if ranks.sums([self.stop.raised], self.agent.generator.device)[0]:
                return False
            self.learned(self.rehearsal.update(self.agent))
            if self.counters.updates % LINES == 0 or not self.agent.owed:
                self.logger.write(self.counters)
            if not self.agent.owed:
                self.collector.publish(self.counters.updates)
        return True

    def conclude(self) -> None:
        """Make the updates that the agent owes when the budget is spent, and look at what has come of them."""
        self.agent.schedule(self.counters.progress)
        if self.finished and self.agent.owed and self.caught_up():
            self.evaluated = min(self.evaluated, self.counters.step - 1)  # it was another agent that was looked at
            self.log(self.counters.step, evaluated=self.evaluate())

    def learned(self, learned: Learned) -> None:
        """Count what was learned."""
        self.counters.updates += learned.updates
        self.logger.add(learned.metrics)

    def log(self, before: int, evaluated: bool = False) -> None:
        """Write a line of the log if one is due; an evaluation always makes it so."""
        if self.log_every:
            due = crossed(before, self.counters.step, self.log_every)
        else:
            due = time.perf_counter() - self.written > 0.5
        if due or evaluated or self.finished:
            self.logger.write(self.counters)
            self.written = time.perf_counter()

    def evaluate(self) -> bool:
        """Evaluate if it is due, and keep the best agent so far; whether it was done. An interruption leaves it due."""
        step = self.counters.step
        last = self.finished and self.config.eval_at_end and self.evaluated < step
        if not last and not crossed(self.evaluated, step, self.config.eval_every):
            return False
        with self.logger.paused():
            if self.config.eval_apart:
                return self._hand_over()
            return self.evaluator is not None and self._evaluate(self.evaluator)

    def _hand_over(self) -> bool:
        """Put the agent down for an evaluator in another process; dreams stay here, where the replay is."""
        self.evaluated = self.counters.step
        self.save("candidate")
        self.report()
        return True

    def _evaluate(self, evaluator: Evaluator) -> bool:
        mode: Mode = "sample" if self.config.eval_stochastic else "eval"
        result = evaluator.evaluate(self.agent, mode, lambda: self.stop.raised)
        if result is None:
            return False
        self.evaluated = self.counters.step
        self.evaluation = result.summary()
        self.logger.add({f"eval/{name}": value for name, value in self.evaluation.items()})
        if result.clips:
            self.logger.video("eval/episodes", reel(result.clips, result.clip_scores))
        self.report()
        if self.evaluation["mean_return"] >= self.best:
            self.best = self.evaluation["mean_return"]
            self.save("best")
        return True

    def report(self) -> None:
        """Log what the agent shows of itself on replayed windows."""
        if self.rehearsal is None or (rows := self.rehearsal.glance()) is None:
            return
        media = self.agent.report(rows)
        self.logger.add(media.metrics)
        if (newest := self.rehearsal.newest()) is not None:
            self.logger.add(self.agent.surprise(newest))
        for name, dream in media.dreams.items() if self.config.eval_videos else ():
            self.logger.video(name, film(scenes(dream, min(self.config.eval_videos, COLUMNS))), FPS)

    def over(self) -> bool:
        """Whether to stop: as soon as one of the processes that learn together wants to, all of them do."""
        return ranks.sums([self.finished or self.stop.raised], self.agent.generator.device)[0] > 0

    @property
    def finished(self) -> bool:
        """Whether the budget is spent or the goal is reached."""
        return self.counters.step >= self.counters.total or self.solved

    @property
    def solved(self) -> bool:
        """Whether the last 100 training episodes reach `run.stop_at`, or the last evaluation `run.goal`."""
        stop_at, goal = self.config.stop_at, self.config.goal
        if stop_at is not None and self.logger.meter.solved(stop_at):
            return True
        return goal is not None and self.evaluation.get("mean_return", float("-inf")) >= goal

    def save(self, name: str) -> None:
        """Write a checkpoint of everything that changes, unless it has nothing left to go on with."""
        path = self.folder / checkpoint.FOLDER / f"{name}.pt"
        if not all(weight.isfinite().all() for weight in self.agent.parameters()):
            raise UserError(f"the agent's weights are not finite, so {path} is not written: lower the learning rate")
        state = self.state()
        if name == "latest" and self.rehearsal is not None:
            state["rehearsal"] = self.rehearsal.state()
        checkpoint.save(path, state)

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs to go on as if it had not stopped."""
        return {
            "counters": self.counters.state_dict(),
            "agent": self.agent.save(),
            "kind": type(self.agent).__name__,
            "collector": self.collector.state(),
            "logger": self.logger.state_dict(),
            "best": self.best,
            "evaluated": self.evaluated,
            "evaluation": self.evaluation,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on where a checkpoint was written."""
        self.counters.load_state_dict(saved["counters"])
        self.agent.restore(saved["agent"])
        anew = self.collector.restore(saved["collector"])
        self.logger.load_state_dict(saved["logger"])
        if self.rehearsal is not None and "rehearsal" not in saved:
            LOG.warning("the checkpoint is of an evaluation and has no replay: it fills anew before learning goes on")
        elif self.rehearsal is not None:
            self.rehearsal.restore(saved["rehearsal"])
            if anew:
                self.rehearsal.replay.sever()
        self.best, self.evaluated, self.evaluation = saved["best"], saved["evaluated"], saved["evaluation"]
        self.collector.publish(self.counters.updates)

    def follow_first(self) -> None:
        """Stand where the first of the processes stands that learn together: a kill may part them between two saves."""
        mine = self.agent.save()
        standing = {"agent": mine, "counters": self.counters.state_dict(), "evaluated": self.evaluated}
        first: dict[str, Any] = ranks.agreed(standing)
        if ranks.number():
            self.agent.restore(first["agent"] | {name: mine[name] for name in OWN if name in mine})
            self.counters.load_state_dict(first["counters"])
            self.evaluated = first["evaluated"]
        if self.rehearsal is not None:
            self.rehearsal.follow_first()


LINES = 100
"""Updates between two lines of the log while nothing is collected."""
OWN = ("generator", "acted", "carried")
"""What of an agent belongs to one process alone."""


def crossed(before: int, now: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, now]; never if `every` is 0."""
    return every > 0 and now // every > before // every
