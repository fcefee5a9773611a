"""From plain functions to compiled ones while an agent learns: others compile, and it takes what is ready."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Protocol

import torch

from ..nn.graph import WARMUP
from .compiled import obstacle

LOG = logging.getLogger("reverie")

PATIENCE = 300.0
"""Seconds after which an agent no longer waits for others."""


class Crew(Protocol):
    """Those who compile."""

    def finished(self) -> set[str]:
        """Functions that are in torch's cache by now, by name."""

    def trouble(self) -> str:
        """Why others will never be, in a line; empty if they may."""

    def close(self) -> None:
        """Let all of them end."""


class Changeover:
    """Which functions of an agent may be compiled ones: those that a crew has finished.

    What the crew has compiled is found in a cache on disk. What it has not, the agent compiles itself and waits for.
    """

    def __init__(self, names: Iterable[str], device: torch.device) -> None:
        self.plain, self.device = set(names), device
        self.crew: Crew | None = None
        self.began = time.monotonic()
        self.calm = 0
        """Updates since the last change."""
        self.alone = False
        """Whether something was left to this agent to compile."""
        self.over = False

    def begin(self, crew: Crew) -> None:
        """Wait for a crew from now on."""
        self.crew, self.began = crew, time.monotonic()

    def ready(self) -> set[str]:
        """Functions that are to be compiled ones from the coming update on."""
        found = self._found() if self.plain else set()
        self.calm = 0 if found else self.calm + 1
        if not self.plain:
            self._conclude()
        return found

    def _found(self) -> set[str]:
        """What others have compiled since the last update, or all that is left if they will not."""
        if self.crew is None:
            return self._forsaken("nobody else does it")
        found = self.plain & self.crew.finished()
        self.plain -= found
        if self.plain and (trouble := self.crew.trouble() or self._lateness()):
            found |= self._forsaken(trouble)
        return found

    def _conclude(self) -> None:
        """Say that all is done once graphs have been captured, too."""
        self.close()
        self.over = self.alone or self.calm > WARMUP + 1
        if self.over and not self.alone:
            # a warning, as nothing else is shown unless it is asked for
            LOG.warning("updates run at full speed after %.0f s of compiling beside them", self._waited)

    def _forsaken(self, trouble: str) -> set[str]:
        """What is left to compile here; nothing if that is impossible."""
        self.close()
        left, self.plain, self.alone = self.plain, set(), True
        if reason := obstacle(self.device):
            LOG.warning("updates are not compiled, which is slower: %s", reason)
            return set()
        LOG.warning("updates wait while %d functions are compiled: %s", len(left), trouble)
        return left

    def _lateness(self) -> str:
        return f"no process has done so within {PATIENCE:g} s" if self._waited > PATIENCE else ""

    @property
    def _waited(self) -> float:
        return time.monotonic() - self.began

    def close(self) -> None:
        """Let the crew end."""
        if self.crew is not None:
            self.crew.close()
