"""Ctrl-C and SIGTERM: the first asks the loop to save and leave, a second Ctrl-C leaves at once."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType

log = logging.getLogger("reverie")


class Interrupt:
    """A flag that signals raise while this is entered; elsewhere than in the main thread it stays down."""

    def __init__(self) -> None:
        self.raised = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.raised and number == signal.SIGINT:
            os._exit(130)
        first, self.raised = not self.raised, True  # before a word is said: the next signal may come meanwhile
        if first:
            log.warning("stopping: finishing this round, then saving (Ctrl-C again leaves at once)")

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
