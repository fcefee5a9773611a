"""Processes that learn together: half a batch in each of two gives the update of the whole batch in one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.dreamer import Dreamer
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.losses.kl import beyond_free
from reverie.nn import ranks
from reverie.nn.scale import ReturnRange, RunningNorm

OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
B, T, H = 6, 5, 4
GENERATIONS = ("dreamer_v1", "dreamer_v2", "dreamer_v3")


def agent_of(preset):
    torch.manual_seed(0)
    options = {
        "replay.prefill": 0,
        "optim.model.warmup": 0,
        "optim.model.lr": 1e-2,
        "world.precision": "float32",
        "behavior.starts": 0,
        "behavior.horizon": H,
    }
    config = replaced(stacked([preset, "debug"]), options)
    return Dreamer(OBSERVATION, spaces.Discrete(3), config, torch.device("cpu"))


def rows_of(agent):
    g = torch.Generator().manual_seed(1)
    rows = {"vector": torch.randn(B, T, 3, generator=g), "reward": torch.randn(B, T, generator=g)}
    rows |= {key: torch.rand(B, T, generator=g) < 0.1 for key in ("is_first", "is_last", "is_terminal")}
    rows["action"] = torch.randint(3, (B, T), generator=g)
    if agent.replay.start == "stored":
        config = agent.world.config
        rows["deter"] = torch.randn(B, T, config.deter, generator=g).bfloat16()
        rows["stoch"] = torch.randint(config.classes, (B, T, config.groups), generator=g, dtype=torch.uint8)
    return rows


def with_noise(agent, part):
    """Random numbers by their place in the whole batch, of which this agent sees a part of the windows."""

    def patched(owner):
        draw, calls = owner.noise, [0]

        def give(shape, generator):
            calls[0] += 1
            seed = torch.Generator().manual_seed(calls[0])
            if shape[0] != H:  # (windows, rows)
                return draw((B, *shape[1:]), seed)[part]
            steps, starts = shape  # (horizon, windows * rows)
            rows = starts // len(range(B)[part])
            return draw((steps, B, rows), seed)[:, part].flatten(1, 2)

        owner.noise = give

    patched(agent.world.rssm.latent)
    patched(agent.behavior.policy)


def updated(preset, part):
    """The agent after two updates on its part of the windows, and the metrics of the second."""
    agent = agent_of(preset)
    with_noise(agent, part)
    rows = {key: x[part] for key, x in rows_of(agent).items()}
    agent.learn_replay(rows)
    metrics = agent.learn_replay(rows).metrics
    return agent.state_dict(), metrics


def spoiled(rank):
    """Which weights move in an update in which the second process alone has a loss that is not finite."""
    agent = agent_of("dreamer_v3")
    predictions = agent.world.predictions

    def endless(*inputs):
        losses, metrics = predictions(*inputs)
        return losses | {"reward": losses["reward"] + (torch.inf if rank else 0.0)}, metrics

    agent.world.predictions = endless
    before = {name: value.clone() for name, value in agent.state_dict().items()}
    agent.learn_replay(rows_of(agent))
    return {name for name, value in agent.state_dict().items() if not torch.equal(value, before[name])}


def learn_half(rank, port, folder):
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    with ranks.joined(torch.device("cpu")):
        part = slice(rank * B // 2, (rank + 1) * B // 2)
        found = {preset: updated(preset, part) for preset in GENERATIONS}
        norm, spread = RunningNorm(2), ReturnRange(5.0, 95.0, 0.01)
        values = torch.randn(8, 2, generator=torch.Generator().manual_seed(3))[rank * 4 : rank * 4 + 4]
        norm.update(values)
        spread(values)
        free = beyond_free(torch.full((2,), 1.0 + 2 * rank), 1.5, over_mean=True)
        found["parts"] = {"norm": norm.state_dict(), "spread": spread.state_dict(), "free": free}
        found["moved"] = spoiled(rank)
        found["said"] = (ranks.agreed(f"I am {rank}"), ranks.sums([rank, 1], torch.device("cpu")))
    torch.save(found, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    from ports import free_port  # the processes that run this file alone would not find it

    port = free_port()
    commands = [[sys.executable, __file__, str(rank), str(port), str(folder)] for rank in range(2)]
    started = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("preset", GENERATIONS)
def test_two_halves_make_the_update_of_the_whole(halves, preset):
    weights, metrics = updated(preset, slice(0, B))
    for half_weights, half_metrics in (half[preset] for half in halves):
        for name, value in weights.items():
            torch.testing.assert_close(half_weights[name], value, rtol=1e-3, atol=1e-4, msg=f"{preset} {name}")
        for name, value in metrics.items():
            torch.testing.assert_close(half_metrics[name], value, rtol=5e-3, atol=1e-4, msg=f"{preset} {name}")


def test_statistics_are_those_of_all_rows(halves):
    norm, spread = RunningNorm(2), ReturnRange(5.0, 95.0, 0.01)
    values = torch.randn(8, 2, generator=torch.Generator().manual_seed(3))
    norm.update(values)
    spread(values)
    for half in halves:
        for name, value in norm.state_dict().items():
            torch.testing.assert_close(half["parts"]["norm"][name], value)
        for name, value in spread.state_dict().items():
            torch.testing.assert_close(half["parts"]["spread"][name], value)
    # a KL of 1 in one process and of 3 in the other is 2 in the mean, above the free 1.5: both count
    assert [half["parts"]["free"][0].item() for half in halves] == [1.0, 3.0]


def test_a_loss_that_is_not_finite_in_one_process_is_skipped_by_all(halves):
    assert [half["moved"] for half in halves] == [{"skipped", "failed"}] * 2


def test_all_hear_the_first_and_add_up(halves):
    assert [half["said"] for half in halves] == [("I am 0", [1.0, 2.0])] * 2


def run_together(folder, *words):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0"]
    command += [
        "--rdzv_backend",
        "c10d",
        "--rdzv_endpoint",
        "127.0.0.1:0",
        "-m",
        "reverie",
        "train",
        "--logdir",
        str(folder),
    ]
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.timeout(600)
def test_torchrun_trains_one_agent_and_resumes(tmp_path):
    folder = tmp_path / "run"
    words = ("--device", "cpu", "--log.display", "plain", "--run.eval_videos", "0")
    first = run_together(folder, "--configs", "cartpole", "debug", *words, "--run.steps", "240")
    assert first.returncode == 0, first.stderr[-2000:]
    assert first.stdout.count("Trained for") == 1
    (folder / "rank-1/checkpoints/latest.pt").unlink()  # as if it had been killed before it could save
    again = run_together(folder, "--resume", "--run.steps", "360")
    assert again.returncode == 0, again.stderr[-2000:]
    saved = [torch.load(path / "checkpoints/latest.pt", weights_only=False) for path in (folder, folder / "rank-1")]
    weights = [each["agent"]["module"] for each in saved]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert saved[0]["counters"]["step"] == saved[1]["counters"]["step"] >= 360
    assert saved[0]["counters"]["updates"] == saved[1]["counters"]["updates"] > 0
    rows = [each["collector"]["stream"]["rows"]["vector"] for each in saved]
    assert not np.array_equal(*rows)  # each has environments of its own
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] >= 360


if __name__ == "__main__":
    learn_half(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
