"""MLflow: parameters, metrics and videos of a run on a tracking server or in a folder."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...config.errors import UserError, extra, first_line
from ...config.schema import LogConfig
from ..video import Clip, write_bytes
from .videos import file_name

RUN_FILE = "mlflow_run.txt"
BATCH = 100
"""MLflow takes 100 parameters and 1,000 metrics in one message; a hundred suits both."""
LONGEST_VALUE = 500
"""Characters of a parameter's value that every version and store of MLflow takes."""
KEPT = 20_000
"""Metrics kept while the server does not answer; beyond that the oldest are dropped."""
AWAY = 30.0
"""Seconds for which a server that has not answered is left alone."""
HASTE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""How MLflow asks it: by itself it would try for minutes, and whoever writes has to go on meanwhile."""


class MlflowSink:
    """One MLflow run per run folder: its id is kept there, so that a resumed run goes on in it."""

    def __init__(self, folder: Path, config: LogConfig, params: Mapping[str, Any]) -> None:
        self._mlflow = installed()
        self._pending: list[Any] = []
        self._open = True
        self._away = float("-inf")
        """When the server last did not answer."""
        try:
            self._client = client(self._mlflow, config.mlflow_uri or (folder.absolute() / "mlruns").as_uri())
            with hastily():
                self.run_id = self._begun(folder, config.mlflow_experiment, params)
        except self._mlflow.exceptions.MlflowException as error:
            raise UserError(f"MLflow cannot start: {first_line(error)}: check --log.mlflow_uri") from error

    def _begun(self, folder: Path, experiment: str, params: Mapping[str, Any]) -> str:
        """The id of the run, which is under way from now on."""
        known = (folder / RUN_FILE).read_text().strip() if (folder / RUN_FILE).exists() else ""
        run_id = known or self._created(experiment, folder.absolute().name, params)
        self._client.update_run(run_id, status="RUNNING")
        write_bytes(folder / RUN_FILE, f"{run_id}\n".encode())
        return run_id

    def _created(self, experiment: str, name: str, params: Mapping[str, Any]) -> str:
        found = self._client.get_experiment_by_name(experiment)
        owner = found.experiment_id if found else self._client.create_experiment(experiment)
        run_id = str(self._client.create_run(owner, run_name=name).info.run_id)
        values = [self._mlflow.entities.Param(key, str(value)[:LONGEST_VALUE]) for key, value in params.items()]
        for start in range(0, len(values), BATCH):
            self._client.log_batch(run_id, params=values[start : start + BATCH])
        return run_id

    def write(self, step: int, scalars: dict[str, float], videos: dict[str, np.ndarray]) -> None:
        """Send metrics and videos; training goes on when the server does not answer, and metrics are sent later.

        Names without a slash get one: a store of files cannot hold both `time` and `time/sps`.
        """
        now = int(time.time() * 1000)
        named = {name if "/" in name else f"total/{name}": value for name, value in scalars.items()}
        self._pending += [self._mlflow.entities.Metric(name, value, now, step) for name, value in named.items()]
        if time.monotonic() - self._away >= AWAY:
            self._send()
        del self._pending[:-KEPT]
        if videos and time.monotonic() - self._away >= AWAY:
            self._send_videos(step, videos)

    def _send(self) -> bool:
        """Send what waits; whether the server has all of it."""
        with self._forgiving("metrics are kept and sent later"):
            while self._pending:
                self._client.log_batch(self.run_id, metrics=self._pending[:BATCH])
                del self._pending[:BATCH]
        return not self._pending

    def _send_videos(self, step: int, videos: dict[str, np.ndarray]) -> None:
        with tempfile.TemporaryDirectory() as folder, self._forgiving("videos of this step are not sent"):
            for name, frames in videos.items():
                path = Path(folder) / file_name(name, step)
                write_bytes(path, Clip.of(frames).gif())
                self._client.log_artifact(self.run_id, str(path), "videos")

    @contextlib.contextmanager
    def _forgiving(self, consequence: str) -> Iterator[None]:
        try:
            with hastily():
                yield
        except Exception as error:  # MLflow raises many kinds, and none of them is worth ending a run for
            self._away = time.monotonic()
            logging.getLogger("reverie").warning("MLflow: %s: %s", first_line(error), consequence)

    def close(self) -> None:
        """Send what is left and mark the run as finished."""
        if not self._open:
            return
        self._open = False
        if self._send():
            self._ended()

    def _ended(self) -> None:
        with self._forgiving("the run is not marked as finished"):
            self._client.set_terminated(self.run_id, "FINISHED")


class MlflowGuest(MlflowSink):
    """Writes into the run of another process, which alone begins and ends it."""

    def __init__(self, folder: Path, config: LogConfig) -> None:
        super().__init__(folder, config, {})

    def _begun(self, folder: Path, experiment: str, params: Mapping[str, Any]) -> str:
        return (folder / RUN_FILE).read_text().strip()

    def _ended(self) -> None:
        pass


def installed() -> Any:
    """The mlflow package."""
    try:
        found = importlib.import_module("mlflow")
        importlib.import_module("mlflow.tracking")
        return found
    except ImportError as error:
        raise UserError(f"MLflow is not installed: {extra('mlflow')}") from error


def client(mlflow: Any, uri: str) -> Any:
    """A client of a tracking address; a folder is allowed, which newer versions must be told in the environment."""
    if "://" in uri and not uri.startswith("file:"):
        return mlflow.tracking.MlflowClient(tracking_uri=uri)
    with told(MLFLOW_ALLOW_FILE_STORE="true"):
        return mlflow.tracking.MlflowClient(tracking_uri=uri)


@contextlib.contextmanager
def hastily() -> Iterator[None]:
    """Inside, MLflow asks its server twice at most, and the attempts are not reported one by one."""
    reports = logging.getLogger("urllib3.connectionpool")
    level = reports.level
    reports.setLevel(logging.ERROR)
    try:
        with told(**HASTE):
            yield
    finally:
        reports.setLevel(level)


@contextlib.contextmanager
def told(**values: str) -> Iterator[None]:
    """Inside, MLflow finds these in the environment, where it looks for settings; the user's own come first."""
    ours = {name: value for name, value in values.items() if not os.environ.get(name)}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
