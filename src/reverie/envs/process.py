"""Environments in worker processes, several in each, with shared memory for everything large.

Gymnasium has an AsyncVectorEnv; this one exists because it restarts single environments and workers while the others go
on, and because it is faster (benchmarks/envs.py measures both).
"""

from __future__ import annotations

import logging
import os
import pickle
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from ..config.errors import UserError
from ..config.schema import EnvsConfig
from .crew import Crew, Lost, dismiss
from .memory import Memory, Plan, SharedBlock
from .serial import fitting, same_spaces, set_spaces
from .slot import Factory, Past, named, too_often

STEP = (b"\x00", b"\x01")
"""The command to step into the first or the second frame."""


class ProcessVector(VectorEnv):
    """A vector environment over worker processes; what it returns stays valid until the step after next."""

    restarts = True
    """Single environments that break, or give numbers that are not finite, are restarted."""

    def __init__(self, factories: Sequence[Factory], seed: int, settings: EnvsConfig) -> None:
        self.settings, self.base_seed = settings, seed
        self.names = [getattr(factory, "name", "") for factory in factories]
        self.deaths = np.zeros(len(factories), np.int64)  # of the process, while this environment was at work
        self.ended = np.ones(len(factories), np.bool_)
        self.memory: Memory | None = None
        self.block: SharedBlock | None = None
        self.side = 0
        self.pending = False
        self.crews = [
            Crew(number, {index: factories[index] for index in indices}, seed, settings)
            for number, indices in enumerate(shares(len(factories), settings.workers or core_count()))
        ]
        self.dismissal = weakref.finalize(self, dismiss, self.crews)  # also if nobody closes this
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start all workers, learn the spaces from them, and share memory with them."""
        for crew in self.crews:
            crew.launch({})
        built = [spaces for crew in self.crews for spaces in self.built(crew)]
        _, observation, action, self.render_mode = built[0]
        for index, *pair, _ in built[1:]:
            same_spaces(index, pair, (observation, action))
        set_spaces(self, observation, action, len(built))
        self.plan = Plan(observation, action, len(built), len(self.crews))
        self.block = SharedBlock(self.plan.size())
        self.memory = Memory(self.plan, self.block.map)
        self.memory.busy[:] = -1
        self.memory.episode[:] = -1
        for crew in self.crews:
            crew.share(self.plan, self.block)

    def built(self, crew: Crew) -> list[tuple[Any, ...]]:
        """Index, spaces and render mode of each environment of a worker, once all are built."""
        while True:
            found: list[tuple[Any, ...]] = []
            try:
                while len(found) < len(crew.factories):
                    crew.waiting = True
                    found.append(crew.receive())
                return found
            except Lost as loss:
                self.blame(crew, list(crew.factories)[len(found)], loss)
                crew.launch(self.past(crew))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """The first observations of new episodes; a seed starts the numbering of episodes again."""
        self.ended[:] = True
        self.side ^= 1
        self.ask("reset", self.side, seed)
        self.ended[:] = False
        frame = self.frames[self.side]
        return dict(frame.observation), frame.infos({})

    def step(self, actions: np.ndarray) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray, dict]:
        """What the actions lead to."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: np.ndarray) -> None:
        """Send the actions; the workers play them at once."""
        assert self.memory is not None
        if self.pending:
            raise RuntimeError("step_async twice without step_wait")
        self.memory.action[:] = fitting(actions, self.memory.action)
        self.side ^= 1
        self.pending = True
        for crew in self.crews:
            crew.send(STEP[self.side])

    def step_wait(self) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray, dict]:
        """What the actions sent last lead to."""
        if not self.pending:
            raise RuntimeError("step_wait without step_async")
        summaries: dict[int, dict[str, float]] = {}
        for crew in self.crews:
            if crew.waiting:  # not so if an earlier step_wait was interrupted
                for words in self.answer(crew, STEP[self.side]):
                    summaries.update(words)
        self.pending = False
        frame = self.frames[self.side]
        np.logical_or(frame.terminated, frame.truncated, out=self.ended)
        self.deaths[self.ended & ~frame.broken] = 0
        return *frame.outcome(), frame.infos(summaries)

    def state(self) -> dict[str, Any]:
        """What `restore` needs to bring deterministic environments back to where they are."""
        slots = {index: state for states in self.ask("state") for index, state in states.items()}
        return {"slots": [slots[index] for index in range(self.num_envs)]}

    def restore(self, state: dict[str, Any]) -> dict[str, np.ndarray]:
        """The observations after playing the saved episodes again."""
        saved = state["slots"]
        if len(saved) != self.num_envs:
            raise ValueError(f"a state of {len(saved)} environments for {self.num_envs}")
        self.side ^= 1
        self.ask("restore", self.side, saved)
        self.ended[:] = [slot["ended"] for slot in saved]
        return dict(self.frames[self.side].observation)

    def render(self) -> tuple[Any, ...] | None:
        """The picture of the first environment, None if it shows none."""
        (picture,) = self.pictures(1)
        return None if picture is None else (picture,)

    def pictures(self, count: int) -> list[Any]:
        """The pictures of the first environments, None for one that shows none."""
        found = {index: picture for pictures in self.ask("render", count) for index, picture in pictures.items()}
        return [found[index] for index in range(min(count, self.num_envs))]

    @property
    def frames(self) -> tuple[Any, ...]:
        """The two frames of the shared memory."""
        assert self.memory is not None
        return self.memory.frames

    def ask(self, *words: Any) -> list[Any]:
        """The answers of all workers to one command."""
        if self.pending:
            raise RuntimeError(f"{words[0]} between step_async and step_wait")
        message = pickle.dumps(words)
        for crew in self.crews:
            crew.send(message)
        return [answer for crew in self.crews for answer in self.answer(crew, message)]

    def answer(self, crew: Crew, message: bytes) -> tuple[Any, ...]:
        """A worker's answer to a command; one that is lost is replaced, and the new one answers it."""
        memory = self.memory
        assert memory is not None
        while True:
            try:
                return crew.receive(lambda: int(memory.busy[crew.number]))
            except Lost as loss:
                self.blame(crew, int(memory.busy[crew.number]), loss)
                memory.busy[crew.number] = -1
                crew.launch(self.past(crew))
                self.built(crew)
                assert self.block is not None
                crew.share(self.plan, self.block)
                crew.send(message)

    def blame(self, crew: Crew, index: int, loss: Lost) -> None:
        """Clear a lost worker away and count its loss against the environment that was at work, if one was."""
        crew.kill()
        if index >= 0:
            self.deaths[index] += 1
            if self.deaths[index] >= self.settings.max_restarts:
                raise UserError(too_often(index, self.names[index], int(self.deaths[index]), str(loss)))
        first = index if index >= 0 else next(iter(crew.factories))
        others = f", as are {len(crew.factories) - 1} more in its process" if len(crew.factories) > 1 else ""
        who = f"environment {first}{named(self.names[first])}"
        logging.getLogger("reverie").warning(f"{who} broke and is restarted{others}: {loss}")

    def past(self, crew: Crew) -> dict[int, Past]:
        """What the slots of a new worker take over from those of the lost one."""
        memory, past = self.memory, {}
        for index in crew.factories:
            breaks = int(self.deaths[index])
            if memory is None:
                past[index] = Past(breaks=breaks)
            elif self.ended[index]:  # its next episode may have been begun already: leave that seed out
                past[index] = Past(int(memory.episode[index]) + 1, breaks)
            else:
                past[index] = Past(int(memory.episode[index]), breaks, self.shown(index))
        return past

    def shown(self, index: int) -> dict[str, np.ndarray]:
        """The observation an environment showed before the command that was lost."""
        return self.frames[self.side ^ 1 if self.pending else self.side].row(index)

    def close_extras(self, **kwargs: Any) -> None:
        """End all workers."""
        self.dismissal()
        if self.block is not None:
            self.block.close()


def shares(count: int, workers: int) -> list[list[int]]:
    """The indices of `count` environments in even runs for at most `workers` workers."""
    workers = max(1, min(count, workers))
    return [chunk.tolist() for chunk in np.array_split(np.arange(count), workers)]


def core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
