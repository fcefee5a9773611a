import logging
import os
import sys
import time

import numpy as np
import pytest

from required import package
from reverie.config.errors import UserError
from reverie.config.schema import LogConfig
from reverie.log.sinks import mlflow

package("mlflow")


def client(folder):
    return mlflow.client(mlflow.installed(), (folder / "mlruns").as_uri())


def history(folder, run_id, name):
    return [(each.step, each.value) for each in client(folder).get_metric_history(run_id, name)]


def test_parameters_metrics_and_videos_reach_the_store(tmp_path):
    params = {f"option.number{index}": index for index in range(250)} | {"task": "toy_catch", "long": "x" * 9000}
    sink = mlflow.MlflowSink(tmp_path, LogConfig(mlflow_experiment="trial"), params)
    sink.write(
        10, {f"metric/{index}": float(index) for index in range(150)}, {"eval/v": np.zeros((2, 8, 8, 3), np.uint8)}
    )
    sink.close()
    found = client(tmp_path).get_run(sink.run_id)
    assert found.data.params["task"] == "toy_catch" and len(found.data.params) == 252
    assert found.data.metrics["metric/149"] == 149.0 and len(found.data.metrics) == 150
    assert found.info.status == "FINISHED" and found.info.run_name == tmp_path.name
    assert client(tmp_path).get_experiment_by_name("trial").experiment_id == found.info.experiment_id
    assert [each.path for each in client(tmp_path).list_artifacts(sink.run_id, "videos")] == [
        "videos/eval_v_000000010.gif"
    ]


def test_a_resumed_run_goes_on_in_the_same_run(tmp_path):
    first = mlflow.MlflowSink(tmp_path, LogConfig(), {"seed": 1})
    first.write(1, {"train/loss": 1.0}, {})
    first.close()
    second = mlflow.MlflowSink(tmp_path, LogConfig(), {"seed": 2})
    assert client(tmp_path).get_run(first.run_id).info.status == "RUNNING"
    second.write(2, {"train/loss": 2.0}, {})
    second.close()
    assert second.run_id == first.run_id
    assert history(tmp_path, first.run_id, "train/loss") == [(1, 1.0), (2, 2.0)]
    assert client(tmp_path).get_run(first.run_id).data.params == {"seed": "1"}


def test_a_guest_writes_into_the_run_and_leaves_its_state_alone(tmp_path):
    host = mlflow.MlflowSink(tmp_path, LogConfig(), {"seed": 1})
    for status in ("RUNNING", "FINISHED"):
        guest = mlflow.MlflowGuest(tmp_path, LogConfig())
        guest.write(1, {"eval/mean_return": 5.0}, {"eval/v": np.zeros((2, 8, 8, 3), np.uint8)})
        guest.close()
        found = client(tmp_path).get_run(host.run_id)
        assert found.info.status == status and found.data.metrics == {"eval/mean_return": 5.0}
        host.close()
    assert client(tmp_path).list_artifacts(host.run_id, "videos")


def test_a_name_that_is_also_a_folder_of_names_is_kept(tmp_path):
    sink = mlflow.MlflowSink(tmp_path, LogConfig(), {})
    sink.write(1, {"time": 5.0, "time/sps": 7.0}, {})
    sink.close()
    assert client(tmp_path).get_run(sink.run_id).data.metrics == {"total/time": 5.0, "time/sps": 7.0}


def test_an_existing_experiment_is_used_again(tmp_path):
    uri = (tmp_path / "mlruns").as_uri()
    runs = [mlflow.MlflowSink(tmp_path / name, LogConfig(mlflow_uri=uri), {}) for name in ("a", "b")]
    for run in runs:
        run.close()
    owners = {client(tmp_path).get_run(run.run_id).info.experiment_id for run in runs}
    assert len(owners) == 1 and runs[0].run_id != runs[1].run_id


def test_metrics_wait_while_the_store_is_away(tmp_path, caplog):
    sink = mlflow.MlflowSink(tmp_path, LogConfig(), {})
    (tmp_path / "mlruns").rename(tmp_path / "away")
    sink.write(1, {"train/loss": 1.0}, {"eval/v": np.zeros((2, 8, 8, 3), np.uint8)})
    assert "MLflow" in caplog.text and "sent later" in caplog.text
    if (tmp_path / "mlruns").exists():
        (tmp_path / "mlruns").rename(tmp_path / "leftover")
    (tmp_path / "away").rename(tmp_path / "mlruns")
    sink.write(2, {"train/loss": 2.0}, {})
    sink.close()
    assert history(tmp_path, sink.run_id, "train/loss") == [(1, 1.0), (2, 2.0)]


def test_a_server_that_is_gone_is_left_alone_for_a_while(tmp_path, monkeypatch, caplog):
    """MLflow itself would try for minutes, at every write."""
    sink = mlflow.MlflowSink(tmp_path, LogConfig(), {})
    local, gone = sink._client, mlflow.client(mlflow.installed(), "http://127.0.0.1:9")  # where nothing listens
    monkeypatch.setattr(sink, "_client", gone)
    began = time.monotonic()
    for step in range(5):
        sink.write(step, {"train/loss": float(step)}, {"eval/v": np.zeros((2, 8, 8, 3), np.uint8)})
    assert time.monotonic() - began < 20
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    monkeypatch.setattr(sink, "_client", local)
    monkeypatch.setattr(mlflow, "AWAY", 0.0)
    sink.write(5, {"train/loss": 5.0}, {})
    assert history(tmp_path, sink.run_id, "train/loss") == [(step, float(step)) for step in range(6)]


def test_a_server_that_is_not_there_is_told_at_the_start(tmp_path):
    began = time.monotonic()
    with pytest.raises(UserError, match=r"MLflow cannot start: .*--log\.mlflow_uri"):
        mlflow.MlflowSink(tmp_path, LogConfig(mlflow_uri="http://127.0.0.1:9"), {})
    assert time.monotonic() - began < 20


def test_the_environment_is_left_as_it_was(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    mlflow.MlflowSink(tmp_path, LogConfig(), {}).close()
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ


def test_an_address_that_does_not_work_is_told_in_one_line(tmp_path):
    with pytest.raises(UserError, match=r"MLflow cannot start: .*--log\.mlflow_uri") as error:
        mlflow.MlflowSink(tmp_path, LogConfig(mlflow_uri="gopher://nowhere"), {})
    assert "\n" not in str(error.value)


def test_a_missing_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(
        UserError, match=r"pip install 'reverie\[mlflow\]' \(in a checkout: pip install -e '\.\[mlflow\]'\)"
    ):
        mlflow.MlflowSink(tmp_path, LogConfig(), {})
