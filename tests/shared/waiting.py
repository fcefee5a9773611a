"""Waiting for what other processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(condition: Callable[[], Found], seconds: float = 120.0) -> Found:
    """What a condition finds as soon as it finds something; that nothing does in so many seconds is an error."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "nothing moves any more"
        time.sleep(0.02)
    return found
