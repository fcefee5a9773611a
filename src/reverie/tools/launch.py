"""Processes that belong together: their output labelled line by line, all of them ended when one is."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from ..config.errors import ending
from .parent import leaver

LOOK = 0.1
"""Seconds between two looks at the processes."""
PATIENCE = 60.0
"""Seconds that an evaluator has to end by itself before it is killed; a learner saves for as long as it takes."""

LABELLED = re.compile(r"\[(generator \d+)\] (.*\S|)")
"""A line that a learner repeats of one of its generators."""

Say = Callable[[str, str], None]
"""Takes a label and a line."""


class Member:
    """One process of a team."""

    def __init__(self, name: str, words: Sequence[str], say: Say) -> None:
        self.name, self.say = name, say
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a Ctrl-C at the terminal is for the one who launched, who hands it on
            preexec_fn=leaver(),
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            labelled = LABELLED.match(line)
            self.say(*labelled.groups() if labelled else (self.name, line.rstrip()))

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    @property
    def end(self) -> str:
        """A phrase for how it ended."""
        return ending(self.process.returncode)

    def join(self, patience: float | None) -> None:
        """Wait until it has ended and all it said is told; one that takes longer is killed."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Team:
    """A learner, which has generators of its own, and an evaluator that follows it."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.members: list[Member] = []
        self.interrupted = False

    def lead(self, learner: Sequence[str], evaluator: Sequence[str], at_work: Callable[[], bool]) -> int:
        """Run both to their end, the evaluator from when the learner is at work; the status of what failed, or 0."""
        with self._interruptible():
            self._start("learner", learner)
            if self._first_gone(at_work) is None and evaluator and not self.interrupted:
                self._start("evaluator", evaluator)
            gone = self._first_gone()
            assert gone is not None
            # an evaluator that is content before the learner is done has seen its goal reached
            finished = gone.process.returncode == 0 and (gone is self.members[0] or not at_work())
            if not finished and not self.interrupted:
                self.say("launch", f"the {gone.name} {gone.end}: the others are told to end")
                self._tell(signal.SIGTERM)
            for each in self.members:  # an evaluator ends by itself, after the last checkpoint of the learner
                each.join(None if finished or each is self.members[0] else PATIENCE)
        code = self.members[0].process.returncode or (0 if self.interrupted else gone.process.returncode)
        return 128 - code if code < 0 else code

    def _start(self, name: str, words: Sequence[str]) -> None:
        member = Member(name, words, self.say)
        self.members.append(member)
        if self.interrupted and member.running:  # perhaps before it was a member
            member.process.send_signal(signal.SIGINT)

    def _first_gone(self, enough: Callable[[], bool] = lambda: False) -> Member | None:
        """The first process that has ended; None if it is enough before."""
        while True:
            gone = next((each for each in self.members if not each.running), None)
            if gone is not None or enough():
                return gone
            time.sleep(LOOK)

    def _tell(self, number: int) -> None:
        for each in self.members:
            if each.running:
                each.process.send_signal(number)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM are handed on."""
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self._tell(signal.SIGINT)
