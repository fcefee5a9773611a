"""Episodes as artifacts of an MLflow run, for generators and learners that share a server and no folder."""

from __future__ import annotations

import io
import logging
import tempfile
import time
from pathlib import Path, PurePosixPath

from ..config.errors import UserError, first_line
from ..config.whole import reason
from ..data.episode_file import UNREADABLE, Title, Titles, decode, encode
from ..data.episodes import Damage, checked, listed
from ..data.rows import Rows
from .sinks.mlflow import AWAY, client, hastily, installed, told

LOGGER = logging.getLogger("reverie")

PLACE = "episodes"
"""The folder of the run's artifacts that they lie in."""
ARRIVAL = 60.0
"""Seconds that an artifact may take to be whole: a server may show it while it still writes it."""
PAUSE = 1.0
"""Seconds after which an older one that is not whole is read again: it may have been sent late, or clocks differ."""
QUIET = {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
KEPT = 1 << 30
"""Bytes of episodes that are kept while the server does not answer; beyond that the oldest are dropped."""


class MlflowStore:
    """Episodes under `episodes/` of a run, each an artifact. Nothing is ever removed: a server keeps what it has.

    While the server does not answer, episodes wait in memory and go with a write some seconds later, or with `send`;
    and there is nothing to read. What a writer that died left half-sent is no whole file, and is skipped like any
    damaged one.
    """

    def __init__(self, uri: str, run_id: str, compress: bool = True) -> None:
        self.run_id, self.compress = run_id, compress
        self.damage = Damage(f"MLflow run {run_id}")
        self.titles = Titles()
        self.waiting: dict[str, bytes] = {}
        """Files that are still to be sent."""
        self.away = float("-inf")
        """When the server last did not answer."""
        mlflow = installed()
        try:
            self._client = client(mlflow, uri)
            with hastily():
                self._client.get_run(run_id)
        except mlflow.exceptions.MlflowException as error:
            raise UserError(
                f"no episodes of MLflow run {run_id} at {uri}: {first_line(error)}: check address and run"
            ) from error

    @property
    def damaged(self) -> list[str]:
        """Names of what was found that is no whole episode, each once."""
        return list(self.damage.names)

    def write(self, episode: Rows) -> str:
        """The name of a whole episode, which is sent, or waits for the server."""
        name = str(self.titles(checked(episode)))
        file = io.BytesIO()
        encode(file, episode, self.compress)
        self.waiting[name] = file.getvalue()
        if time.monotonic() - self.away >= AWAY:
            self.send()
        else:
            self._make_room()
        return name

    def send(self) -> bool:
        """Send what waits, oldest first; whether all of it is with the server."""
        with tempfile.TemporaryDirectory() as folder, hastily():
            for name in list(self.waiting):
                path = Path(folder) / name
                path.write_bytes(self.waiting[name])
                try:
                    self._client.log_artifact(self.run_id, str(path), PLACE)
                except Exception as error:  # MLflow raises many kinds, and none of them is worth ending a run for
                    self.away = time.monotonic()
                    self._warn(error, f"{len(self.waiting)} episodes wait for it")
                    break
                path.unlink()
                del self.waiting[name]
        self._make_room()
        return not self.waiting

    def _make_room(self) -> None:
        while sum(map(len, self.waiting.values())) > KEPT:
            lost = next(iter(self.waiting))
            del self.waiting[lost]
            LOGGER.warning("MLflow: no room to keep more: episode %s is lost", lost)

    def names(self) -> list[str]:
        """The episodes there are, newest last; none while the server does not answer."""
        try:
            with hastily():
                found = self._client.list_artifacts(self.run_id, PLACE)
        except Exception as error:  # as above
            self._warn(error, "no episodes are read now")
            return []
        return listed((PurePosixPath(each.path).name for each in found if not each.is_dir), self.damage)

    def read(self, name: str) -> Rows | None:
        """The episode; None where it is damaged, is still on its way, or cannot be fetched now."""
        title = Title.parse(name)
        if title is None:
            self.damage.note(name, "its name is not that of an episode")
            return None
        for patience in (PAUSE, 0.0):
            try:
                data = self._fetched(name)
            except Exception as error:  # as above
                self._warn(error, f"{name} is not read now")
                return None
            try:
                return decode(io.BytesIO(data), title)
            except UNREADABLE as error:
                why = reason(error)
            if title.age < ARRIVAL:
                return None
            time.sleep(patience)
        self.damage.note(name, why)
        return None

    def _fetched(self, name: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder, hastily(), told(**QUIET):
            return Path(self._client.download_artifacts(self.run_id, f"{PLACE}/{name}", folder)).read_bytes()

    def _warn(self, error: Exception, consequence: str) -> None:
        LOGGER.warning("MLflow: %s: %s", first_line(error), consequence)
