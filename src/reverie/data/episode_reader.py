"""Episodes of a store for a learner: those that are new, all of them or the newest alone."""

from __future__ import annotations

from typing import Any, Literal

from .episode_file import Title
from .episodes import EpisodeStore
from .rows import Rows

Order = Literal["all", "newest"]
"""all: every episode once, oldest first. newest: those that newer ones have overtaken are passed over."""


class EpisodeReader:
    """Gives the episodes of a store that it has not given yet.

    `limit` is in steps, rounded up to whole episodes; 0 is without limit. With `all` it is how much one poll gives at
    most, and the rest waits for the next one. With `newest` the episodes before the newest `limit` steps are passed
    over for good.
    """

    def __init__(self, store: EpisodeStore, order: Order = "all", limit: int = 0) -> None:
        if order == "newest" and not limit:
            raise ValueError("newest needs a limit: how many steps count as new")
        self.store, self.order, self.limit = store, order, limit
        self.done: set[str] = set()
        """Names that were given or passed over and are still in the store."""

    def poll(self) -> dict[str, Rows]:
        """The new episodes that can be read by name, oldest first; those that cannot are the store's to note."""
        names = self.store.names()
        self.done &= set(names)
        if self.order == "newest":
            self.done |= set(names) - set(self._within(names[::-1]))
        new = [name for name in names if name not in self.done]
        found: dict[str, Rows] = {}
        for name in new if self.order == "newest" else self._within(new):
            episode = self.store.read(name)
            if episode is not None:  # another is damaged or gone, so no longer among the names, or still on its way
                self.done.add(name)
                found[name] = episode
        return found

    def _within(self, names: list[str]) -> list[str]:
        """As many of the names, from the first on, as it takes for the limit."""
        chosen: list[str] = []
        steps = 0
        for name in names:
            if self.limit and steps >= self.limit:
                break
            title = Title.parse(name)
            steps += title.steps if title else 0
            chosen.append(name)
        return chosen

    def state(self) -> dict[str, Any]:
        """What `restore` goes on from."""
        return {"done": sorted(self.done)}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.done = set(saved["done"])
