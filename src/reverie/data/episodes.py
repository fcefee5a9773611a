"""Stores of whole episodes, and the one that is a folder, which many write and read at once.

episode_file.py has what is in a file and what it is called. Nothing here needs torch.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from ..config.errors import UserError
from ..config.whole import PARTIAL, reason, write_whole
from .episode_file import UNREADABLE, Title, Titles, decode, encode, fault
from .rows import Rows

LOGGER = logging.getLogger("reverie")

STALE = 3600.0
"""Seconds after which a file that nobody finished is taken for left behind by a process that died."""


class EpisodeStore(Protocol):
    """Where whole episodes are kept."""

    @property
    def damaged(self) -> list[str]:
        """Names of what was found that is no whole episode, each once."""

    def write(self, episode: Rows) -> str:
        """The name that a whole episode got; it can be read from now on."""

    def names(self) -> list[str]:
        """The episodes there are, newest last, without those known to be damaged."""

    def read(self, name: str) -> Rows | None:
        """The episode; None where it is damaged, which is noted, or not there (any more)."""


class Damage:
    """Names of files that are skipped; each is told once."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.names: list[str] = []

    def note(self, name: str, why: str) -> None:
        """Skip this one from now on."""
        if name not in self.names:
            self.names.append(name)
            message = "episode %s in %s is skipped: %s (%d skipped there so far)"
            LOGGER.warning(message, name, self.place, why, len(self.names))


def checked(episode: Rows) -> Rows:
    """The same; an error where it is no whole episode."""
    if why := fault(episode):
        raise ValueError(f"this is no whole episode: {why}")
    return episode


def listed(names: Iterable[str], damage: Damage) -> list[str]:
    """Those that are episodes as far as is known, newest last; hidden files are not looked at, others noted."""
    found = []
    for name in names:
        if name.startswith("."):
            continue
        if Title.parse(name) is None:
            damage.note(name, "its name is not that of an episode")
        else:
            found.append(name)
    return sorted(set(found) - set(damage.names))


def outdated(names: list[str], keep: int) -> list[str]:
    """The episodes that all lie before the newest `keep` steps."""
    held = 0
    for index in range(len(names) - 1, -1, -1):
        if held >= keep:
            return names[: index + 1]
        title = Title.parse(names[index])
        held += title.steps if title else 0
    return []


class FolderStore:
    """Episodes as files of one folder, for any number of processes and machines that see it.

    A file gets its name when it is whole and on the disk. With `keep` a write removes the episodes that lie before the
    newest `keep` steps; who reads one of them meanwhile reads on, who comes later finds nothing.
    """

    def __init__(self, folder: Path | str, keep: int = 0, compress: bool = False) -> None:
        self.folder, self.keep, self.compress = Path(folder), keep, compress
        self.damage = Damage(str(folder))
        self.titles = Titles()
        self.ready = False

    @property
    def damaged(self) -> list[str]:
        """Names of what was found that is no whole episode, each once."""
        return list(self.damage.names)

    def write(self, episode: Rows) -> str:
        """The name that a whole episode got."""
        name = str(self.titles(checked(episode)))
        try:
            if not self.ready:
                self._prepare()
            write_whole(self.folder / name, lambda file: encode(file, episode, self.compress))
        except OSError as error:
            raise UserError(
                f"cannot write an episode into {self.folder}: {reason(error)}: make room or choose another folder"
            ) from error
        if self.keep:
            for old in outdated(self.names(), self.keep):
                remove(self.folder / old)
        return name

    def names(self) -> list[str]:
        """The episodes there are, newest last."""
        try:
            return listed(os.listdir(self.folder), self.damage)
        except FileNotFoundError:
            return []

    def read(self, name: str) -> Rows | None:
        """The episode; None where it is damaged or gone."""
        title = Title.parse(name)
        if title is None:
            self.damage.note(name, "its name is not that of an episode")
            return None
        try:
            with open(self.folder / name, "rb") as file:
                return decode(file, title)
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            self.damage.note(name, reason(error))
            return None

    def _prepare(self) -> None:
        """Make the folder and remove what processes that died left unfinished in it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob(f".*{PARTIAL}"):
            try:
                stale = time.time() - path.stat().st_mtime > STALE
            except FileNotFoundError:
                continue
            if stale:
                remove(path)
        self.ready = True


def remove(path: Path) -> None:
    """Remove a file if that is possible now; where open files cannot be removed, another write tries again."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        LOGGER.debug("cannot remove %s yet", path)
