"""Processes that end when the one that started them does."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable
from typing import Any

PARENT_DIED = 1
"""Linux's number of the request to be told when the parent is gone (PR_SET_PDEATHSIG)."""


def leaver() -> Callable[[], Any] | None:
    """What a child calls before it begins, so that it saves and leaves when its parent dies; Linux alone can."""
    if not sys.platform.startswith("linux"):
        return None
    control = ctypes.CDLL(None).prctl
    return lambda: control(PARENT_DIED, int(signal.SIGTERM))
