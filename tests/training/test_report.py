"""Reports show what training would not have shown otherwise, and change nothing of it."""

import json

import pytest
import torch

from reverie.build import make_parts, make_run
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.training.folder import prepare
from reverie.training.loop import Run

STARTS = {
    "stored": {"replay.start": "stored", "replay.uniform": 0.0, "replay.online": 1.0},
    "zeros": {"replay.start": "zeros", "replay.uniform": 0.5, "replay.recent": 0.5},
    "carried": {"replay.start": "carried"},
}
OPTIONS = {"task": "toy_reach", "run.steps": 100_000, "run.eval_every": 64, "run.save_every": 0, "log.every": 100}


def rounds(folder, options, count):
    """A run after some rounds of training, its environments closed."""
    config = replaced(stacked(["dreamer_v3", "debug"]), OPTIONS | options | {"logdir": str(folder)})
    parts = make_parts(config)
    run = make_run(config, prepare(config, False), parts, False, quiet=True)
    for _ in range(count):
        step = run.counters.step
        run.round()
        run.log(step, run.evaluate())
    run.logger.close()
    parts.close()
    return run


def same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right))
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


@pytest.mark.parametrize("start", STARTS)
def test_training_is_the_same_with_and_without_reports(tmp_path, monkeypatch, start):
    reported = rounds(tmp_path / "reported", STARTS[start], 60)
    lines = [json.loads(line) for line in (tmp_path / "reported/metrics.jsonl").read_text().splitlines()]
    assert sum("world/open_loop_error" in line and line["world/new_kl"] > 0 for line in lines) >= 2
    assert list((tmp_path / "reported/videos").glob("world_dream_*.gif"))
    monkeypatch.setattr(Run, "report", lambda self: None)
    silent = rounds(tmp_path / "silent", STARTS[start], 60)
    assert not list((tmp_path / "silent/videos").glob("world_dream_*.gif"))
    assert reported.rehearsal.updates == silent.rehearsal.updates > 10
    assert same(reported.agent.save(), silent.agent.save())
    assert same(reported.rehearsal.state(), silent.rehearsal.state())


def test_a_glance_is_drawn_evenly_and_anew_after_every_update(tmp_path):
    run = rounds(tmp_path / "run", STARTS["stored"], 60)
    batch = run.rehearsal.glance()
    assert batch["is_first"].shape == (4, 30) and not batch["continues"].any()
    assert torch.equal(batch["index"], run.rehearsal.glance()["index"])
    run.rehearsal.updates += 1
    assert not torch.equal(batch["index"], run.rehearsal.glance()["index"])


def test_the_newest_windows_end_with_the_newest_rows(tmp_path):
    run = rounds(tmp_path / "run", STARTS["stored"], 60)
    index, replay = run.rehearsal.newest()["index"], run.rehearsal.replay
    assert torch.equal(index[:, -1], (replay.total - 1) * replay.envs + torch.arange(replay.envs))
    assert torch.equal(index.diff(), torch.full_like(index[:, 1:], replay.envs))


def test_dreams_are_reported_where_evaluations_are_left_to_others(tmp_path):
    run = rounds(tmp_path, STARTS["stored"] | {"run.eval_apart": True}, 60)
    assert run.evaluator is None and (tmp_path / "checkpoints/candidate.pt").exists()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    reported = [line["step"] for line in lines if "world/open_loop_error" in line]
    assert len(reported) >= 2 and reported[-1] == run.evaluated
    assert (tmp_path / f"videos/world_dream_{run.evaluated:09d}.gif").exists()


@pytest.mark.parametrize(("policy", "count"), [("imagined", 40), ("on_policy_ppo", 2), ("imagined_ppo", 40)])
def test_a_model_full_of_nan_is_still_filmed(tmp_path, policy, count):
    run = rounds(tmp_path / "run", STARTS["stored"] | {"agent.policy": policy, "run.eval_every": 0}, count)
    assert not list((tmp_path / "run").glob("videos/*"))
    with torch.no_grad():
        for weights in run.agent.parameters():
            weights.fill_(torch.nan)
    shown = []
    run.logger.video = lambda name, frames, fps: shown.append(frames)
    run.report()
    assert len(shown) == 1 and shown[0].dtype == "uint8" and shown[0].std() > 0


def test_nothing_is_reported_before_learning_begins_nor_without_videos_any_video(tmp_path):
    run = rounds(tmp_path / "early", {"replay.warmup": 100_000}, 20)
    assert run.rehearsal.glance() is None
    assert "world/" not in (tmp_path / "early/metrics.jsonl").read_text()
    rounds(tmp_path / "bare", {"run.eval_videos": 0}, 60)
    assert "world/open_loop_error" in (tmp_path / "bare/metrics.jsonl").read_text()
    assert not list((tmp_path / "bare").glob("videos/*"))
