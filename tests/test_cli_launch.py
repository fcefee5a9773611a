"""Learner, generators and evaluator from one command."""

import json
import os
import re
import signal
import subprocess
import sys

import torch

import reverie
from required import package
from reverie.commands import learning as commands
from reverie.config import store
from reverie.tools.launch import Team
from reverie.training.lock import in_use
from waiting import until

OPTIONS = ["--configs", "cartpole_ppo", "debug", "--generators", "2", "--envs.count", "2", "--run.eval_videos", "0"]


def launch(folder, *words):
    command = [sys.executable, "-m", "reverie", "launch", *OPTIONS, "--logdir", str(folder), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_launched_run_is_trained_evaluated_and_labelled(tmp_path):
    with launch(tmp_path / "run") as process:
        out = process.stdout.read()
    assert process.returncode == 0, out
    steps = int(re.search(r"\[learner\] Trained for (\d+) steps", out)[1])
    assert f"[evaluator] step {steps}: mean return" in out
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    evaluations = {line["step"]: line["eval/mean_return"] for line in lines if "eval/mean_return" in line}
    assert steps in evaluations and any("collect/lag" in line for line in lines)
    best = torch.load(tmp_path / "run" / "checkpoints" / "best.pt", weights_only=True)
    assert best["best"] == max(evaluations.values())
    assert list((tmp_path / "run" / "evaluator").glob("events*"))

    more = ["train", "--resume", "--logdir", str(tmp_path / "run"), "--run.steps", str(2 * steps)]
    subprocess.run([sys.executable, "-m", "reverie", *more], check=True, capture_output=True)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert "eval/mean_return" in lines[-1], "without a launcher it evaluates itself"


LOUD = """
import sys, time
from gymnasium.envs.classic_control import CartPoleEnv
class Loud(CartPoleEnv):
    def reset(self, **options):
        sys.stdout.write("begins ")
        sys.stdout.flush()
        time.sleep(0.01)
        print("anew")
        return super().reset(**options)
"""


def test_generators_speak_in_whole_lines_with_their_number(tmp_path, monkeypatch):
    (tmp_path / "loud.py").write_text(LOUD)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with launch(tmp_path / "run", "--task", "loud:Loud", "--run.eval_every", "0", "--run.eval_at_end", "False") as run:
        lines = run.stdout.read().splitlines()
    assert run.returncode == 0, lines
    said = {line for line in lines if "begins" in line or "anew" in line}
    assert said == {"[generator 0] begins anew", "[generator 1] begins anew"}


def test_evaluations_of_a_follower_reach_mlflow_and_wandb_in_the_run_s_own_runs(tmp_path, call, monkeypatch):
    package("mlflow")
    package("wandb")
    monkeypatch.setattr("os.nice", lambda increment: 0)
    sinks = ["--log.mlflow", "True", "--log.wandb", "True", "--log.wandb_mode", "offline"]
    words = [*OPTIONS[:3], *sinks, "--run.eval_apart", "True", "--run.eval_videos", "0", "--logdir", str(tmp_path)]
    for command in (["train", *words], ["eval", "--follow", "--logdir", str(tmp_path)]):
        assert call(*command)[0] == 0
    assert len(list(tmp_path.glob("mlruns/*/*/metrics/eval/mean_return"))) == 1
    assert len(list(tmp_path.glob("mlruns/*/*/params"))) == 1
    name = (tmp_path / "wandb_run.txt").read_text().strip()
    stored = f"wandb/offline-run-*/run-{name}.wandb"
    # W&B's own process writes the end of its file a moment after it has said that all is done
    assert until(lambda: any(b"eval/mean_return" in each.read_bytes() for each in tmp_path.glob(stored)))
    assert len(list(tmp_path.glob(stored))) == len(list(tmp_path.glob("wandb/offline-run-*")))


def test_following_a_run_that_evaluates_itself_is_refused(trained, call):
    status, _, err = call("eval", "--follow", "--logdir", str(trained))
    assert status == 2 and "evaluates itself" in err


def test_generators_are_processes_unless_the_run_has_others(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(Team, "lead", lambda self, learner, *rest: said.append(learner) or 0)
    store.save(reverie.configure("cartpole_ppo", collect__mode="ray"), tmp_path)
    assert (
        commands.launch(["--configs", "cartpole_ppo"]) == commands.launch(["--resume", "--logdir", str(tmp_path)]) == 0
    )
    assert [words[words.index("train") + 1 :][:2] == ["--collect.mode", "process"] for words in said] == [True, False]


def test_a_launched_run_stops_at_ctrl_c_with_everything_saved(tmp_path):
    with launch(tmp_path / "run", "--run.steps", "100000000") as process:
        for line in process.stdout:
            if "step" in line:
                break
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
    assert process.returncode == 0 and "saved" in out, out
    assert f"launch --resume --logdir {tmp_path / 'run'}" in out and "train --resume" not in out
    assert (tmp_path / "run" / "checkpoints" / "latest.pt").exists() and not in_use(tmp_path / "run")
