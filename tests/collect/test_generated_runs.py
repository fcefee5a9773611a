"""Whole runs whose rows come from generators."""

import json

import torch

import reverie
from reverie.config.options import replaced


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def config_of(folder, *presets, **options):
    given = {"task": "toy_count", "envs__count": 3, "run__steps": 300, "run__eval_every": 0, "run__eval_at_end": False,
             "run__save_every": 0, "collect__mode": "process", "collect__generators": 2, "collect__rows": 8,
             "log__tensorboard": False, "log__every": 50, **options}  # fmt: skip
    return reverie.configure(*presets, logdir=str(folder), **given)


def test_a_dreamer_learns_at_its_ratio_and_goes_on_after_a_stop(tmp_path):
    config = config_of(tmp_path / "run", "dreamer_v3", "debug")
    first = reverie.train(config, quiet=True)
    assert 300 <= first.step < 300 + 8 * 3 and first.episodes
    last = lines(tmp_path / "run")[-1]
    assert last["collect/rows_per_second"] > 0 and last["collect/lag"] >= 0 and last["episode/return"] == 55
    assert 0 <= last["collect/learner_waited"] <= 1
    before = torch.load(tmp_path / "run" / "checkpoints" / "latest.pt", weights_only=True)["counters"]["updates"]
    second = reverie.train(replaced(config, {"run.steps": 500}), resume=True, quiet=True)
    lags = [line["collect/lag"] for line in lines(tmp_path / "run") if line["step"] > first.step]
    assert lags and max(lags) < before  # what acts first is known to be of the checkpoint
    third = reverie.train(replaced(config, {"run.steps": 600, "collect.mode": "inline"}), resume=True, quiet=True)
    assert 500 <= second.step < 530 and 600 <= third.step < 605
    saved = torch.load(tmp_path / "run" / "checkpoints" / "latest.pt", weights_only=True)
    steps, debug = third.step, reverie.configure("dreamer_v3", "debug").replay
    due = (steps - debug.warmup) * debug.ratio / (debug.batch * debug.length)
    assert abs(saved["counters"]["updates"] - debug.pretrain - due) < 4
    steps_seen = [line["step"] for line in lines(tmp_path / "run")]
    assert steps_seen == sorted(steps_seen)


def test_ppo_and_ppo_on_a_world_model_learn_from_generators(tmp_path):
    for name, presets in {"ppo": ("cartpole_ppo", "debug"), "latent": ("dreamer_v3", "debug")}.items():
        policy = {"agent__policy": "on_policy_ppo"} if name == "latent" else {}
        config = config_of(tmp_path / name, *presets, ppo__rollout=16, ppo__minibatch=16, **policy)
        assert reverie.train(config, quiet=True).step >= 300
        last = lines(tmp_path / name)[-1]
        assert last["collect/lag"] == 0 and last["train/approx_kl"] < 0.1
