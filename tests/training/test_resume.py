"""A run that was stopped and resumed equals the one that never was, to the last bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from reverie.build import make_parts, make_run
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.training import checkpoint
from reverie.training.folder import prepare
from waiting import until

CASES = {
    "native": {"task": "gym_CartPole-v1", "env.time_limit": None},
    "serial": {"task": "gym_CartPole-v1", "envs.backend": "serial"},
    "processes": {"task": "gym_CartPole-v1", "envs.backend": "process", "envs.workers": 2},
    "images": {"task": "toy_catch", "ppo.features": 32},
    "continuous": {
        "task": "gym_Pendulum-v1",
        "ppo.normalize_observation": True,
        "ppo.normalize_reward": True,
        "ppo.lr_anneal": True,
    },
}


EXPLORE = {"explore.intrinsic": 1.0, "explore.members": 3}
DREAMERS = {
    "newest": ("dreamer_v3", {}),
    "carried": ("dreamer_v3", {"replay.start": "carried", "replay.uniform": 1.0, "replay.online": 0.0}),
    "prioritised": ("dreamer_v3", {"replay.online": 0.0, "replay.prioritised": 1.0, "replay.storage": "disk"}),
    "first": ("dreamer_v1", {"world.cnn": "pool"}),
    "on_policy": ("dreamer_v3", {"agent.policy": "on_policy_ppo", "ppo.rollout": 8, "ppo.minibatch": 8}),
    "on_policy_by_programs": (
        "dreamer_v3",
        {"agent.policy": "on_policy_ppo", "ppo.rollout": 128, "ppo.minibatch": 512, "envs.count": 4},
    ),
    "explorer": ("dreamer_v3", EXPLORE | {"explore.until": 110, "explore.fit": 3, "explore.task": False}),
    "first_explorer": (
        "dreamer_v1",
        EXPLORE | {"explore.until": 150, "explore.extrinsic": 1.0, "explore.target": "feature"},
    ),
    "dream_ppo": ("dreamer_v3", {"agent.policy": "imagined_ppo", "ppo.minibatch": 32}),
}


def config_of(folder, case, presets=("debug",)):
    options = {"run.steps": 100_000, "run.eval_every": 200, "run.eval_videos": 0, "run.save_every": 0, "log.every": 100}
    return replaced(stacked(presets), options | case | {"logdir": str(folder)})


def play(config, count, resume):
    """Some rounds of training, as the loop does them, then a checkpoint."""
    parts = make_parts(config)
    run = make_run(config, prepare(config, resume), parts, resume, quiet=True)
    for _ in range(count):
        step = run.counters.step
        run.round()
        run.log(step, run.evaluate())
    run.save("latest")
    run.logger.close()
    parts.close()


def plain(value):
    """A state without what the clock decides."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in ("elapsed",)}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def assert_equal(left, right, where=""):
    assert type(left) is type(right), where
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_equal(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list):
        assert len(left) == len(right), where
        for i, pair in enumerate(zip(left, right)):
            assert_equal(*pair, f"{where}/{i}")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    else:
        assert left == right, where


def log_of(folder):
    """The lines of a run's log, without what the clock decides."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith("time")} for line in lines]


@pytest.mark.parametrize("name", CASES)
def test_resumed_equals_uninterrupted(tmp_path, name):
    play(config_of(tmp_path / "whole", CASES[name]), 6, resume=False)
    for resume in (False, True):
        play(config_of(tmp_path / "half", CASES[name]), 3, resume)

    states = [plain(checkpoint.load(tmp_path / each / "checkpoints" / "latest.pt")) for each in ("whole", "half")]
    assert_equal(*states)
    assert log_of(tmp_path / "whole") == log_of(tmp_path / "half")


@pytest.mark.parametrize("name", DREAMERS)
def test_a_resumed_dreamer_equals_the_uninterrupted_one(tmp_path, name):
    preset, options = DREAMERS[name]
    case = {"task": "gym_CartPole-v1", "envs.backend": "serial", "replay.prefill": 16, "replay.warmup": 48} | options
    rounds = {"on_policy_by_programs": (2, 1), "on_policy": (12, 8)}.get(name, (30, 20))  # of 512, 16 and a few steps
    play(config_of(tmp_path / "whole", case, (preset, "debug")), sum(rounds), resume=False)
    for count, resume in zip(rounds, (False, True)):
        play(config_of(tmp_path / "half", case, (preset, "debug")), count, resume)

    states = [plain(checkpoint.load(tmp_path / each / "checkpoints" / "latest.pt")) for each in ("whole", "half")]
    assert_equal(*states)
    assert states[0]["counters"]["updates"] > 10
    logs = log_of(tmp_path / "whole"), log_of(tmp_path / "half")
    assert logs[0] == logs[1] and "world/vector_loss" in logs[0][-1]


def started(folder: Path, *more: str) -> subprocess.Popen:
    words = ["train", "--configs", "cartpole_ppo", "--logdir", str(folder), "--run.steps", "10_000_000", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "reverie", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_metrics(folder: Path) -> None:
    deadline = time.monotonic() + 120
    while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)


ENDLESS = """
import time
from pathlib import Path
from reverie.envs.toy import Count

class Slow(Count):
    def step(self, action):
        time.sleep(0.01)
        Path("begun").touch()
        return super().step(action)
"""


def test_a_second_ctrl_c_leaves_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("endless.py").write_text(ENDLESS)
    slow = ("--task", "endless:Slow", "--envs.backend", "serial", "--ppo.rollout", "3_000_000")  # hours for a round
    with started(tmp_path / "run", *slow) as process:
        try:
            until(Path("begun").exists)
            process.send_signal(signal.SIGINT)
            assert any("finishing this round" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 130
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves(tmp_path, number):
    folder = tmp_path / "run"
    with started(folder) as process:
        wait_for_metrics(folder)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "--resume" in out
    assert "Traceback" not in err
    assert checkpoint.load(folder / "checkpoints" / "latest.pt")["counters"]["step"] > 0


def test_killed_outright_the_folder_is_free_and_the_run_goes_on(tmp_path):
    folder = tmp_path / "run"
    with started(folder, "--run.save_every", "1000") as process:
        wait_for_metrics(folder)
        while not (folder / "checkpoints" / "latest.pt").exists():
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    before = checkpoint.load(folder / "checkpoints" / "latest.pt")["counters"]["step"]
    words = ["train", "--resume", "--logdir", str(folder), "--run.steps", str(before + 1000)]
    done = subprocess.run([sys.executable, "-m", "reverie", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps[-1] >= before + 1000
