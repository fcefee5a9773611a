"""Updates that are owed when exploring is over: made once, told, evaluated, and taken up again."""

import json
import os
import signal
from dataclasses import replace

import pytest
import torch

import reverie
from reverie.agents.plan2explore import Plan2Explore
from reverie.config import store
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.training import checkpoint

OPTIONS = {"task": "toy_corridor", "run__steps": 200, "run__eval_every": 0, "run__eval_videos": 0, "explore__fit": 7,
           "log__tensorboard": False, "log__every": 100}  # fmt: skip


def trained(folder, preset="zero_shot", **options):
    config = reverie.configure("dreamer_v3", preset, "debug", logdir=str(folder), **OPTIONS | options)
    return reverie.train(config, quiet=True)


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def saved(folder):
    return checkpoint.load(folder / "checkpoints" / "latest.pt")


def test_the_task_is_fitted_when_the_budget_is_spent_and_looked_at_then(tmp_path):
    outcome = trained(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert not any("world/reward_loss" in line for line in lines if line["step"] < 200)
    fitted = [line for line in lines if "world/reward_loss" in line]
    assert fitted and all(line["step"] == outcome.step for line in fitted)
    assert "eval/mean_return" in lines[-1] and lines[-1]["updates"] == saved(tmp_path / "run")["counters"]["updates"]
    assert saved(tmp_path / "run")["agent"]["fitted"] == 7
    before = [line["updates"] for line in lines if "explore/ensemble_loss" in line][-1]
    assert lines[-1]["updates"] == before + 7


def test_a_finished_run_is_fitted_by_resuming_it(tmp_path):
    """The same as if it had been asked for at the beginning, and no step is taken for it."""
    folder = tmp_path / "later"
    first = trained(folder, explore__fit=0)
    assert saved(folder)["agent"]["fitted"] == 0
    second = reverie.train(replaced(store.load(folder), {"explore.fit": 7}), resume=True, quiet=True)
    assert second.step == first.step and saved(folder)["agent"]["fitted"] == 7
    trained(tmp_path / "once")
    left, right = (saved(each)["agent"]["module"] for each in (folder, tmp_path / "once"))
    assert all(torch.equal(left[name], right[name]) for name in left)
    updates = saved(folder)["counters"]["updates"]
    reverie.resume(folder)  # nothing is owed any more
    assert saved(folder)["counters"]["updates"] == updates


def test_an_interrupted_fit_is_taken_up_where_it_stopped(tmp_path, monkeypatch):
    trained(tmp_path / "whole")
    learn = Plan2Explore.learn_replay

    def learn_and_be_interrupted(agent, rows):
        learned = learn(agent, rows)
        if agent.fitted == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return learned

    with monkeypatch.context() as patch:
        patch.setattr(Plan2Explore, "learn_replay", learn_and_be_interrupted)
        outcome = trained(tmp_path / "half")
    assert outcome.interrupted and saved(tmp_path / "half")["agent"]["fitted"] == 3
    reverie.resume(tmp_path / "half")
    left, right = (saved(tmp_path / each)["agent"]["module"] for each in ("whole", "half"))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_the_task_is_fitted_before_it_collects(tmp_path):
    folder = tmp_path / "run"
    trained(folder, run__steps=300, explore__until=200)
    lines = lines_of(folder)
    explored = [line for line in lines if "explore/ensemble_loss" in line]
    rewarded = [line for line in lines if "world/reward_loss" in line]
    assert explored[-1]["step"] == rewarded[0]["step"] == 200 and rewarded[-1]["step"] == 300
    assert rewarded[0]["updates"] == explored[-1]["updates"] + 7 and "world/kl" not in rewarded[0]
    assert "world/kl" in rewarded[-1] and saved(folder)["agent"]["fitted"] == 7


def test_what_may_change_when_a_run_is_resumed(tmp_path):
    trained(tmp_path / "run")
    config = store.load(tmp_path / "run")
    for name, value in {"until": 100, "fit": 9, "show": True}.items():
        assert not store.differences(config, replace(config, explore=replace(config.explore, **{name: value})))
    with pytest.raises(reverie.UserError, match=r"explore\.intrinsic"):
        reverie.train(replaced(config, {"explore.intrinsic": 2.0}), resume=True, quiet=True)


def test_an_explorer_learns_in_imagination_alone(tmp_path):
    config = replaced(
        stacked(["dreamer_v3", "plan2explore", "debug"]),
        {"logdir": str(tmp_path / "x"), "agent.policy": "imagined_ppo"},
    )
    with pytest.raises(reverie.UserError, match=r"--explore\.intrinsic needs --agent\.policy imagined"):
        reverie.train(config, quiet=True)
    assert not (tmp_path / "x").exists()
