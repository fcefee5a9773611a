"""Errors meant for people: one line that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MARGIN = 0.25
"""How much less like a word than the nearest one others may be to be named beside it."""


class UserError(Exception):
    """Something the user can mend; the command line prints it as one line and exits with status 2."""


class Unwritable(UserError):
    """A file could not be written: the disk or the folder is what is to be mended."""


def extra(name: str) -> str:
    """How to get what an extra of the package installs: beside a wheel, or in a checkout."""
    return f"pip install 'reverie[{name}]' (in a checkout: pip install -e '.[{name}]')"


def first_line(error: BaseException) -> str:
    """What an error of someone else's code says, in one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")


def ending(status: int | None) -> str:
    """A phrase for how a process ended, by its exit status; None is one that nobody knows."""
    if status is None:
        return "ended"
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """A phrase naming the known words closest to `name`, or all of them where there are few."""
    words = sorted(known)
    lower = {word.lower(): word for word in words}
    hits = difflib.get_close_matches(name.lower(), lower, n=count, cutoff=0.5)
    like = [difflib.SequenceMatcher(None, hit, name.lower()).ratio() for hit in hits]
    close = [lower[hit] for hit, ratio in zip(hits, like) if ratio > like[0] - MARGIN]
    if not close:
        close = [word for word in words if name and name.lower() in word.lower()][:count]
    if close:
        return "did you mean " + " or ".join(close) + "?"
    if len(words) <= 12:
        return "known: " + ", ".join(words)
    return f"known: {', '.join(words[:12])}, ... ({len(words)} in all)"
