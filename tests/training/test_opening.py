"""What is said before a run begins agrees with what the run then does."""

from pathlib import Path

import pytest
import torch

from reverie.build import make_agent, make_rehearsal, make_stream
from reverie.collect.collector import Collector
from reverie.config.dreamer import ReplayConfig
from reverie.config.errors import UserError
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.training.opening import layout_of_rows, replay_place, size_of_agent, size_of_replay

CPU = torch.device("cpu")


def parts(preset: str, **options):
    config = replaced(stacked([preset, "debug"]), {name.replace("__", "."): x for name, x in options.items()})
    stream = make_stream(config)
    return config, stream, make_agent(config, *stream.spaces, CPU)


@pytest.mark.parametrize("preset", ["dreamer_v1", "dreamer_v2", "dreamer_v3"])
@pytest.mark.parametrize("task", ["toy_hybrid", "toy_reach", "toy_multi", "gym_CartPole-v1"])
def test_the_layout_is_that_of_the_replay_once_it_has_rows(preset, task):
    config, stream, agent = parts(preset, task=task, env__size=64)
    expected = layout_of_rows(agent, stream.observation_space, stream.count, CPU)
    collector, replay = (
        Collector(stream, agent, CPU),
        make_rehearsal(config, Path("."), CPU).replay,
    )
    replay.add({key: rows[:-1] for key, rows in collector.collect(1).rows.items()})
    stream.close()
    assert replay.layout == expected
    assert ("deter" in expected) == (preset == "dreamer_v3")


def test_the_agent_acts_afterwards_as_it_would_have_before():
    actions = []
    for looked in (False, True):
        _, stream, agent = parts("dreamer_v1", task="toy_catch", env__size=64, replay__prefill=20)
        if looked:
            layout_of_rows(agent, stream.observation_space, stream.count, CPU)
        collector = Collector(stream, agent, CPU)
        actions.append(torch.cat([collector.collect(1).rows["action"][:-1].clone() for _ in range(12)]))
        stream.close()
    assert torch.equal(*actions)
    assert len(actions[0].unique()) > 1


def test_slow_copies_are_no_weights_of_their_own():
    _, stream, agent = parts("dreamer_v3", task="toy_catch")
    stream.close()
    learned = [*agent.world.parameters(), *agent.behavior.actor.parameters(), *agent.behavior.critic.parameters()]
    assert size_of_agent(agent).startswith(f"{sum(each.numel() for each in learned):,} weights (world model ")


@pytest.mark.parametrize(
    ("storage", "words"),
    [("ram", "in memory"), ("pinned", "in page-locked memory"), ("gpu", "on the GPU"), ("disk", "on disk")],
)
def test_the_replay_says_where_it_lies_and_what_it_takes(storage, words):
    layout = {"image": ((64, 64, 3), torch.uint8), "reward": ((), torch.float32)}
    line = size_of_replay(layout, ReplayConfig(capacity=1_000_000), 16, storage)
    assert line == f"replay: 1,000,000 steps of 12,292 bytes, 12.3 GB {words} when full"


@pytest.mark.parametrize(("storage", "place"), [("auto", "ram"), ("ram", "ram"), ("disk", "disk")])
def test_the_replay_lies_where_the_option_says(storage, place, tmp_path):
    config, stream, agent = parts("dreamer_v3", task="toy_catch", replay__storage=storage, logdir=str(tmp_path))
    stream.close()
    layout, found, _ = replay_place(config, agent, stream.observation_space, CPU)
    assert found == place
    replay = make_rehearsal(config, tmp_path, CPU, found).replay
    replay.allocate(layout)
    columns = len(layout) if place == "disk" else 0
    assert len(list((tmp_path / "replay").glob("*.bin"))) == columns and replay.place == CPU


@pytest.mark.parametrize("storage", ["pinned", "gpu"])
def test_a_place_that_a_gpu_must_reach_is_refused_without_one(storage):
    config, stream, agent = parts("dreamer_v3", task="toy_catch", replay__storage=storage)
    stream.close()
    with pytest.raises(UserError, match=f"^--replay.storage {storage} needs a CUDA device: use ram or disk$"):
        replay_place(config, agent, stream.observation_space, CPU)
