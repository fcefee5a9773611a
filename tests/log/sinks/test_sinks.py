"""What every sink promises."""

import numpy as np
import pytest

from reverie.config.schema import LogConfig
from reverie.log.sinks.jsonl import JsonlSink
from reverie.log.sinks.mlflow import MlflowSink
from reverie.log.sinks.tensorboard import TensorBoardSink
from reverie.log.sinks.terminal import TerminalSink
from reverie.log.sinks.videos import VideosSink
from reverie.log.sinks.wandb import WandbSink

SINKS = {
    "jsonl": lambda folder: JsonlSink(folder / "metrics.jsonl"),
    "tensorboard": TensorBoardSink,
    "terminal": lambda folder: TerminalSink("task", 100),
    "videos": VideosSink,
    "mlflow": lambda folder: MlflowSink(folder, LogConfig(), {"seed": 0}),
    "wandb": lambda folder: WandbSink(folder, LogConfig(wandb_mode="offline"), {"seed": 0}),
}


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_takes_anything_and_closes_twice(name, tmp_path):
    sink = SINKS[name](tmp_path / "run")
    frames = np.zeros((3, 8, 8, 3), np.uint8)
    frames[1] = 255
    sink.write(0, {}, {})
    sink.write(
        10, {"frames": 40.0, "train/loss": float("nan"), "a": float("inf"), "b": -float("inf")}, {"eval/v": frames}
    )
    sink.write(10, {"train/loss": 1.0}, {})
    sink.close()
    sink.close()


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_leaves_what_it_is_given_alone(name, tmp_path):
    sink = SINKS[name](tmp_path / "run")
    scalars, videos = {"train/loss": 1.0}, {"eval/v": np.zeros((2, 8, 8, 3), np.uint8)}
    sink.write(10, scalars, videos)
    sink.close()
    assert scalars == {"train/loss": 1.0}
    assert list(videos) == ["eval/v"] and not videos["eval/v"].any()
