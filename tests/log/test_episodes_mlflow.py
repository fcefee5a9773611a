"""Episodes as artifacts of a run on a real MLflow server, with a database, on this machine."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

from ports import free_port
from required import package
from reverie.config.errors import UserError
from reverie.data.episode_file import Titles
from reverie.data.episode_reader import EpisodeReader
from reverie.data.episode_writer import EpisodeWriter
from reverie.log import episodes_mlflow
from reverie.log.episodes_mlflow import MlflowStore
from reverie.log.sinks import mlflow

for name in ("mlflow", "flask", "sqlalchemy"):  # a server needs the whole of MLflow
    package(name)


def answers(uri):
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server that stands while the tests of this file run."""
    folder = tmp_path_factory.mktemp("server")
    uri = f"http://127.0.0.1:{free_port()}"
    words = f"-m mlflow server --host 127.0.0.1 --port {uri.rsplit(':')[-1]} --workers 1"
    words += f" --backend-store-uri sqlite:///{folder}/mlflow.db --artifacts-destination {folder}/artifacts"
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, *words.split()],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + 200
        while not answers(uri):
            assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.2)
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # a polite end takes seconds, and nothing of it is kept
        process.wait()


@pytest.fixture(scope="module")
def client(server):
    """A client of the server, beside the store."""
    return mlflow.client(mlflow.installed(), server)


@pytest.fixture
def run_id(client):
    """A new run."""
    return client.create_run("0").info.run_id


def episode(steps, value=0.0):
    rows = np.arange(steps + 1)
    return {
        "image": np.full((steps + 1, 16, 16, 3), int(value) % 251, np.uint8),
        "reward": np.where(rows == 0, 0, value).astype(np.float32),
        "is_first": rows == 0,
        "is_last": rows == steps,
        "is_terminal": rows == steps,
        "action": rows,
    }


def values(episodes):
    return [float(each["reward"][-1]) for each in episodes]


def upload(client, run_id, folder, name, data):
    (folder / name).write_bytes(data)
    client.log_artifact(run_id, str(folder / name), "episodes")


def test_episodes_go_to_the_server_and_come_back_in_order(server, client, run_id, capfd):
    writer = EpisodeWriter(MlflowStore(server, run_id))
    rows = {name: np.concatenate([episode(3, 1.0)[name], episode(5, -2e12)[name]])[:, None] for name in episode(3)}
    names = writer.add(rows)
    reader = EpisodeReader(MlflowStore(server, run_id))
    assert reader.store.names() == names == sorted(names)
    found = reader.poll()
    assert list(found) == names and reader.poll() == {} and reader.store.damaged == []
    for got, written in zip(found.values(), (episode(3, 1.0), episode(5, -2e12))):
        assert got.keys() == written.keys() and all(np.array_equal(got[name], written[name]) for name in got)
    assert sorted(each.path for each in client.list_artifacts(run_id, "episodes")) == [
        f"episodes/{each}" for each in names
    ]
    assert "%" not in capfd.readouterr().err


def test_damaged_and_foreign_artifacts_are_skipped_and_named(server, client, run_id, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(episodes_mlflow, "PAUSE", 0.01)
    store = MlflowStore(server, run_id)
    whole = store.write(episode(3, 7.0))
    data = client.download_artifacts(run_id, f"episodes/{whole}", str(tmp_path))
    with open(data, "rb") as file:
        half = file.read()[:-100]
    old, young = "20260101T000000000000_0123456789ab_3_7.npz", str(Titles()(episode(3, 7.0)))
    for name in (old, young, "notes.txt"):
        upload(client, run_id, tmp_path, name, half)
    reader = EpisodeReader(store)
    with caplog.at_level(logging.WARNING, logger="reverie"):
        assert list(reader.poll()) == [whole]
    assert sorted(store.damaged) == [old, "notes.txt"] and len(caplog.messages) == 2
    upload(client, run_id, tmp_path, young, store._fetched(whole))  # it was on its way
    assert list(reader.poll()) == [young] and store.names() == [whole, young]


def test_episodes_wait_while_the_server_is_away(server, run_id, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store = MlflowStore(server, run_id)
    there = store._client
    store._client = mlflow.client(mlflow.installed(), f"http://127.0.0.1:{free_port()}")
    with caplog.at_level(logging.WARNING, logger="reverie"):
        names = [store.write(episode(2, value)) for value in (1.0, 2.0)]
        assert store.names() == [] and store.read(names[0]) is None
    assert caplog.text.count("episodes wait") == 1 and len(store.waiting) == 2 and store.damaged == []
    monkeypatch.setattr(episodes_mlflow, "KEPT", len(store.waiting[names[1]]))
    assert not store.send() and list(store.waiting) == names[1:] and f"{names[0]} is lost" in caplog.text
    store._client = there
    monkeypatch.setattr(episodes_mlflow, "AWAY", 0.0)
    names.append(store.write(episode(2, 3.0)))
    assert store.names() == names[1:] and values(map(store.read, names[1:])) == [2.0, 3.0] and store.send()


def test_a_server_that_is_away_does_not_hold_up_whoever_acts(server, run_id):
    store = MlflowStore(server, run_id)
    store._client = mlflow.client(mlflow.installed(), f"http://127.0.0.1:{free_port()}")
    begin = time.monotonic()
    for value in range(5):
        store.write(episode(2, value))
    assert time.monotonic() - begin < 20 and len(store.waiting) == 5


def test_an_upload_that_breaks_off_is_no_episode(server, client, run_id, tmp_path, monkeypatch):
    monkeypatch.setattr(episodes_mlflow, "PAUSE", 0.01)
    monkeypatch.setattr(episodes_mlflow, "ARRIVAL", 0.0)
    store = MlflowStore(server, run_id, compress=False)
    whole = store.write(episode(300, 7.0))
    data, name = store._fetched(whole), str(Titles()(episode(300, 7.0)))
    root = client.get_run(run_id).info.artifact_uri.removeprefix("mlflow-artifacts:")
    head = f"PUT /api/2.0/mlflow-artifacts/artifacts{root}/episodes/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    with socket.create_connection(("127.0.0.1", int(server.rsplit(":")[-1]))) as sender:  # as if killed half-way
        sender.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data[: len(data) // 2])
    seen = set()
    for _ in range(10):  # whenever the server is done with it
        found = {each: store.read(each) for each in store.names()}
        assert found[whole] is not None and found.get(name) is None
        seen |= set(found)
        time.sleep(0.1)
    assert seen <= {whole, name} and store.damaged == sorted(seen - {whole})
    assert name not in store.names() or name not in seen


def test_a_wrong_run_or_address_is_told_in_one_line(server, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for uri in (server, f"http://127.0.0.1:{free_port()}"):
        with pytest.raises(UserError, match="no episodes of MLflow run 0123abcd at http") as error:
            MlflowStore(uri, "0123abcd")
        assert "\n" not in str(error.value)


def test_a_folder_of_runs_is_a_store_too(tmp_path):
    uri = (tmp_path / "mlruns").as_uri()
    run_id = mlflow.client(mlflow.installed(), uri).create_run("0").info.run_id
    store = MlflowStore(uri, run_id)
    assert store.names() == []
    name = store.write(episode(4, 1.5))
    assert values([MlflowStore(uri, run_id).read(name)]) == [1.5]
