"""Every chart of a page has something to show: the metrics of a real run of that family."""

import json
import re

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

import reverie
from reverie.log.sinks.pages import PAGES, layout
from reverie.log.sinks.tensorboard import TensorBoardSink

RUNS = {
    "ppo": ("cartpole_ppo", {}),
    "dreamer": ("cartpole", {}),
    "on_policy_ppo": ("cartpole", {"agent__policy": "on_policy_ppo"}),
    "imagined_ppo": ("cartpole", {"agent__policy": "imagined_ppo"}),
}


def page_of(folder):
    """The titles of the page in a run's events, and the expressions of each of its charts."""
    found = EventAccumulator(str(folder)).Reload()
    proto = Layout.FromString(found.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0])
    (page,) = proto.category
    return page.title, {chart.title: list(chart.multiline.tag) for chart in page.chart}


@pytest.mark.parametrize("family", PAGES)
def test_every_chart_shows_something(family, tmp_path):
    preset, options = RUNS[family]
    options |= {"logdir": str(tmp_path), "device": "cpu", "run__eval_videos": 0, "run__steps": 300}
    outcome = reverie.train(reverie.configure(preset, "debug", **options), quiet=True)
    metrics = {
        name for line in (outcome.logdir / "metrics.jsonl").read_text().splitlines() for name in json.loads(line)
    }
    title, charts = page_of(outcome.logdir)
    assert title == PAGES[family][0]
    for chart, expressions in charts.items():
        for expression in expressions:
            assert any(re.match(expression, name) for name in metrics), (chart, expression)


def test_reconstructions_are_told_from_other_losses():
    (expression,) = layout("dreamer")["Dreamer"]["reconstruction"][1]
    losses = ["image", "vector", "dyn", "rep", "reward", "cont", "represented"]
    assert [name for name in losses if re.match(expression, f"world/{name}_loss")] == ["image", "vector", "represented"]


def test_an_agent_of_ones_own_has_no_page(tmp_path):
    TensorBoardSink(tmp_path).close()
    assert EventAccumulator(str(tmp_path)).Reload().Tags()["tensors"] == []
