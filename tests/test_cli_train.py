"""Training from the command line: what it says, what it leaves behind, how it goes on."""

import json
import re
import shutil
import subprocess
import sys

import pytest

import reverie
from reverie.training import checkpoint


def test_a_run_folder_holds_what_it_should(trained):
    names = {str(path.relative_to(trained)) for path in trained.rglob("*") if path.is_file()}
    assert {"config.yaml", "metrics.jsonl", "checkpoints/latest.pt", "checkpoints/best.pt"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert any(name.startswith("videos/") for name in names)
    last = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    merged = {key: value for line in last for key, value in line.items()}
    expected = [
        "step",
        "frames",
        "updates",
        "time",
        "time/sps",
        "time/fps",
        "time/ups",
        "time/progress",
        "eval/mean_return",
    ]
    expected += ["episode/return", "episode/length", "train/policy_loss", "train/value_loss", "train/entropy"]
    expected += ["train/approx_kl", "train/clip_fraction", "train/explained_variance", "train/grad_norm", "train/lr"]
    assert not [name for name in expected if name not in merged]


def test_train_says_what_was_reached_and_how_to_watch_it(call, tmp_path):
    status, out, _ = call("train", "--configs", "cartpole_ppo", "debug", "--logdir", str(tmp_path / "r"))
    assert status == 0
    assert f"reverie play --logdir {tmp_path / 'r'}" in out
    assert f"tensorboard --logdir {tmp_path / 'r'}" in out
    assert re.search(r"Mean return of the last \d+ training episodes: \d", out)
    assert "Mean return of the last evaluation" in out


def test_train_begins_with_the_size_of_the_agent_and_of_a_full_replay(call, tmp_path):
    words = ["--configs", "cartpole", "debug", "--replay.capacity", "1001", "--logdir", str(tmp_path / "r")]
    status, out, _ = call("train", *words, "--device", "cpu")
    assert status == 0
    first, second, third, *_ = out.splitlines()
    total, world, actor, critic = (int(each.replace(",", "")) for each in re.findall(r"[\d,]*\d", first))
    assert first.startswith("dreamer on cpu: ") and total == world + actor + critic
    # 64 of deter and 4 x 4 of stoch, two layers of 16 with bias, scale and shift each, two actions
    assert actor == (64 + 4 * 4 + 3) * 16 + (16 + 3) * 16 + (16 + 1) * 2
    # per step: 4 numbers, reward, 3 flags, action, 64 of deter in two bytes, 4 classes; rings of 4 environments
    assert (
        second == "replay: 1,004 steps of 163 bytes, 163.7 kB in memory when full" and 163 == 16 + 4 + 3 + 8 + 128 + 4
    )
    assert third.startswith("step ")


def test_options_for_images_of_a_task_without_any_are_told(call, caplog, tmp_path):
    words = ["--configs", "cartpole_ppo", "debug", "--env.stack", "4", "--env.dmc.camera", "1"]
    assert call("train", *words, "--logdir", str(tmp_path / "r"))[0] == 0
    assert caplog.messages == [
        "--env.dmc.camera does nothing here: it is for tasks of dmc, not for gym_CartPole-v1",
        "--env.stack: nothing to do here, as gym_CartPole-v1 shows no images",
    ]


ROUNDED = """
import gymnasium
import numpy as np


class Rounded(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action):
        return np.zeros(2), 0.0, False, False, {}
"""


def test_small_faults_of_an_environment_are_told_once(call, caplog, tmp_path, monkeypatch):
    (tmp_path / "rounded.py").write_text(ROUNDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["--task", "rounded:Rounded", "--configs", "cartpole_ppo", "debug", "--envs.backend", "serial"]
    assert call("train", *words, "--logdir", str(tmp_path / "r"))[0] == 0
    assert [line for line in caplog.messages if "float64" in line] == [
        "environment 0: observation 'vector' is float64, its space promises float32: it is converted"
    ]


def test_train_of_ppo_begins_with_its_size_alone(call, tmp_path):
    words = ["--configs", "cartpole_ppo", "debug", "--logdir", str(tmp_path / "r")]
    lines = call("train", *words, "--device", "cpu")[1].splitlines()
    assert lines[0] == f"ppo on cpu: {4 * 2 + 2 + 4 * 32 + 32 + 32 * 32 + 32 + 32 + 1:,} weights"
    assert lines[1].startswith("step ")


@pytest.mark.parametrize("storage", ["ram", "disk"])
def test_a_replay_that_cannot_fit_is_refused_before_anything_is_written(call, tmp_path, storage):
    words = ["--configs", "cartpole", "debug", "--replay.capacity", "1e15", "--replay.storage", storage]
    status, out, err = call("train", *words, "--logdir", str(tmp_path / "r"))
    assert (status, out) == (2, "")
    assert "a replay of 1,000,000,000,000,000 steps takes 163000000.0 GB (163 bytes a step), but" in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("storage", ["pinned", "gpu"])
def test_a_replay_in_a_gpu_s_reach_is_refused_on_a_cpu_before_anything_is_written(call, tmp_path, storage):
    words = ["--configs", "cartpole", "debug", "--device", "cpu", "--replay.storage", storage]
    status, out, err = call("train", *words, "--logdir", str(tmp_path / "r"))
    assert (status, out) == (2, "")
    assert err.strip().endswith(f"--replay.storage {storage} needs a CUDA device: use ram or disk")
    assert len(err.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


def test_a_full_disk_is_told_and_the_last_checkpoint_kept(tmp_path):
    folder = tmp_path / "run"
    config = reverie.configure("cartpole_ppo", "debug", logdir=str(folder), run__steps=256)
    reverie.train(config, quiet=True)
    step = checkpoint.load(folder / "checkpoints/latest.pt")["counters"]["step"]
    (folder / "checkpoints/.latest.pt.partial").symlink_to("/dev/full")
    words = ["train", "--resume", "--logdir", str(folder), "--run.steps", "2000"]
    done = subprocess.run([sys.executable, "-m", "reverie", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert checkpoint.load(folder / "checkpoints/latest.pt")["counters"]["step"] == step


def test_resume_goes_by_the_folder_it_is_given(trained, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(trained, moved)
    before = checkpoint.load(trained / "checkpoints/latest.pt")["counters"]["step"]
    outcome = reverie.resume(moved)
    assert outcome.logdir == moved
    assert outcome.step == before


def test_a_run_without_a_checkpoint_starts_from_the_beginning(trained, tmp_path):
    new = tmp_path / "new"
    new.mkdir()
    shutil.copy(trained / "config.yaml", new)
    assert reverie.resume(new).step >= 512


def test_a_run_whose_checkpoints_are_gone_is_not_started_over(trained, call, tmp_path):
    gone = tmp_path / "gone"
    shutil.copytree(trained, gone)
    shutil.rmtree(gone / "checkpoints")
    log = (gone / "metrics.jsonl").read_bytes()
    status, _, err = call("train", "--resume", "--logdir", str(gone), "--run.steps", "1000")
    assert status == 2 and "has a log up to step " in err and "but no latest.pt: there is no other" in err
    assert len(err.strip().splitlines()) == 1
    assert (gone / "metrics.jsonl").read_bytes() == log


@pytest.mark.parametrize("presets", [("cartpole_ppo", "debug"), ("cartpole", "debug")])
def test_a_run_with_a_damaged_checkpoint_goes_on_as_its_error_says(call, tmp_path, presets, caplog):
    folder = tmp_path / "a run"
    reverie.train(reverie.configure(*presets, logdir=str(folder), run__eval_videos=0, run__steps=256), quiet=True)
    (folder / "checkpoints/latest.pt").write_bytes(b"damaged")
    (folder / "checkpoints/other.pt").write_bytes(b"damaged too")
    status, _, err = call("train", "--resume", "--logdir", str(folder))
    assert status == 2 and err.strip().endswith("`, then --resume")
    assert subprocess.run(err.split("`")[1], shell=True).returncode == 0
    status, out, err = call("train", "--resume", "--logdir", str(folder), "--run.steps", "400")
    assert status == 0 and re.search("Trained for 4[0-9]{2} steps", out), err
    assert ("it fills anew" in caplog.text) == (presets[0] == "cartpole")


def test_a_damaged_best_checkpoint_is_written_anew(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    (folder / "checkpoints/best.pt").write_bytes(b"damaged")
    config = reverie.configure("cartpole_ppo", "debug", logdir=str(folder), run__steps=700)
    reverie.train(config, resume=True, quiet=True)
    assert checkpoint.load(folder / "checkpoints/best.pt")["counters"]["step"] >= 700


def test_a_run_whose_budget_is_spent_says_so_when_it_is_resumed(trained, call):
    status, out, _ = call("train", "--resume", "--logdir", str(trained))
    assert status == 0 and "Nothing was left to do of its budget of 512 steps" in out


def test_a_run_that_reaches_its_goal_says_so(call, tmp_path):
    words = ("train", "--configs", "cartpole_ppo", "debug", "--log.display", "plain", "--run.eval_every", "64")
    status, out, _ = call(*words, "--run.goal", "-1", "--logdir", str(tmp_path / "run"))
    assert status == 0
    assert re.search(
        r"ended early, as its goal is reached.\nTrain it on: .*train --resume --logdir .*run --run.goal none\n", out
    )
