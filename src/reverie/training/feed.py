"""Episodes of a store for a replay: laid into it before learning begins, and as new ones come."""

from __future__ import annotations

from typing import Any

from ..data.braid import Braid
from ..data.episode_reader import EpisodeReader
from ..data.replay import Replay


class Feed:
    """Reads a store now and then.

    Where live rows come as well, the episodes they belong to are cut where those of the store are laid between them.
    """

    def __init__(self, place: str, reader: EpisodeReader, braid: Braid, every: int, live: bool) -> None:
        self.place, self.reader, self.braid, self.every, self.live = place, reader, braid, every, live
        self.waited = every
        """Steps since the last look."""
        self.episodes = self.steps = 0

    def refill(self, replay: Replay, steps: int) -> int:
        """Lay what is new into the replay, if it is time to look; how many rows that were."""
        self.waited += steps
        if self.waited < self.every:
            return 0
        self.waited = 0
        before = replay.total
        while found := self.reader.poll():
            for name, episode in found.items():
                self.braid.add(episode, name)
            self.episodes += len(found)
            self._lay(replay, last=False)
        self._lay(replay, last=True)
        if self.live and replay.total > before:
            replay.sever()
        self.steps += (replay.total - before) * replay.envs
        return (replay.total - before) * replay.envs

    def _lay(self, replay: Replay, last: bool) -> None:
        block = self.braid.last_block() if last else self.braid.block()
        if block is not None:
            if self.live and not replay.severed:
                replay.sever()
            replay.add(block)

    def metrics(self) -> dict[str, float]:
        """What was read so far, and how many files were skipped as damaged."""
        damaged = len(self.reader.store.damaged)
        return {"store/episodes": self.episodes, "store/steps": self.steps, "store/damaged": damaged}

    def state(self) -> dict[str, Any]:
        """What `restore` goes on from."""
        return {"reader": self.reader.state(), "episodes": self.episodes, "steps": self.steps}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on where `state` was taken: what is in the replay is not read again."""
        self.reader.restore(saved["reader"])
        self.episodes, self.steps = saved["episodes"], saved["steps"]
