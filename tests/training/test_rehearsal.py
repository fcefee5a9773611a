"""Rehearsal: how many updates follow how many steps, and what happens to batches that are not finite."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import reverie
from reverie.agents.base import Agent, Learned
from reverie.build import make_parts, make_run
from reverie.collect.collector import Chunk
from reverie.config.dreamer import ReplayConfig
from reverie.config.errors import UserError
from reverie.data.replay import Replay
from reverie.training.rehearsal import Rehearsal
from reverie.training.skips import PATIENCE

ENVS = 2
CONFIG = ReplayConfig(batch=2, length=4, ratio=2.0, warmup=0, prefill=0, capacity=2000, start="zeros")


class Pupil(Agent):
    """Keeps the batches it is shown; fails while it is told to."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.failing = False
        self.failed = torch.zeros((), dtype=torch.int64)

    def learn_replay(self, rows):
        self.seen.append(rows)
        self.failed.add_(1).mul_(int(self.failing))
        return Learned({}, {"deter": rows["deter"] + 1}, updates=1)

    def failures(self):
        return self.failed


def rehearsal_of(folder, **options):
    config = replace(CONFIG, **options)
    replay = Replay(ENVS, config.capacity, device=torch.device("cpu"), selectors={"uniform": 1.0}, seed=1)
    return Rehearsal(replay, config, folder)


def chunk_of(start, resets=0):
    """The next row of two environments and the one that follows it; a reset is no step."""
    number = torch.arange(start, start + 2).reshape(2, 1).expand(2, ENVS).float()
    rows = {"number": number.clone(), "deter": torch.zeros(2, ENVS, 3, dtype=torch.bfloat16)}
    rows |= {key: torch.zeros(2, ENVS, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    return Chunk(rows, [], ENVS - resets)


def updates(rehearsal, pupil, rounds, start=0, resets=0):
    """How many updates each round brings."""
    chunks = (chunk_of(start + i, resets) for i in range(rounds))
    return [len(list(rehearsal.learn(pupil, chunk, chunk.steps))) for chunk in chunks]


def test_rows_replayed_follow_the_steps_taken(tmp_path):
    rehearsal, pupil = rehearsal_of(tmp_path, ratio=2.0), Pupil()
    # two steps a round ask for 4 rows, a batch has 8: an update every other round, from the 4th row on
    made = updates(rehearsal, pupil, 20)
    assert sum(made[:3]) == 0 and made[3:] == [0, 1] * 8 + [0]
    assert sum(made) == rehearsal.updates == len(pupil.seen)
    assert pupil.seen[0]["number"].shape == (2, 4)


def test_a_high_ratio_makes_several_updates_a_round_and_a_low_one_remembers(tmp_path):
    many = updates(rehearsal_of(tmp_path, ratio=20.0), Pupil(), 13)
    assert many[4:] == [5] * 9
    few = updates(rehearsal_of(tmp_path, ratio=0.3), Pupil(), 404)
    assert sum(few) == int(401 * 2 * 0.3 / 8)


def test_rows_of_resets_are_no_steps(tmp_path):
    made = updates(rehearsal_of(tmp_path, ratio=4.0), Pupil(), 43, resets=1)
    assert sum(made) == 40 * 1 * 4 // 8


def test_learning_waits_for_warm_up_and_prefill(tmp_path):
    for options in ({"warmup": 20}, {"prefill": 20}, {"warmup": 20, "prefill": 6}):
        made = updates(rehearsal_of(tmp_path, ratio=4.0, **options), Pupil(), 12)
        assert made == [0] * 9 + [1] * 3, options


def test_a_stored_start_takes_one_row_more(tmp_path):
    rehearsal, pupil = rehearsal_of(tmp_path, start="stored", ratio=4.0), Pupil()
    made = updates(rehearsal, pupil, 8)
    assert made == [0] * 4 + [1] * 4  # the ratio counts the rows that are learned from
    assert pupil.seen[0]["number"].shape == (2, 5)


def test_updates_when_learning_begins(tmp_path):
    made = updates(rehearsal_of(tmp_path, ratio=4.0, pretrain=7, warmup=10), Pupil(), 8)
    assert made == [0] * 4 + [8] + [1] * 3


def test_updates_come_in_rounds(tmp_path):
    made = updates(rehearsal_of(tmp_path, ratio=4.0, train_every=6), Pupil(), 15)
    assert made == [0, 0, 0] + [0, 0, 3] + [0, 0, 3] * 3


def test_what_an_update_finds_out_lands_on_the_rows_it_saw(tmp_path):
    rehearsal, pupil = rehearsal_of(tmp_path, ratio=4.0), Pupil()
    updates(rehearsal, pupil, 10)
    counts = torch.zeros(10, ENVS)
    before = torch.zeros(10, ENVS, 3)
    for batch in pupil.seen:  # a row in two windows of one batch is written once
        for slot in batch["index"].flatten().unique().tolist():
            counts[slot // ENVS, slot % ENVS] += 1
        assert torch.equal(batch["number"], (batch["index"] // ENVS).float())
    written = rehearsal.replay.columns["deter"][:10].float()
    assert torch.equal(written, before + counts.unsqueeze(-1))


def test_failing_batches_are_written_down_and_the_run_stops_in_the_end(tmp_path):
    rehearsal, pupil = rehearsal_of(tmp_path, ratio=4.0), Pupil()
    updates(rehearsal, pupil, 6)
    assert not list(tmp_path.glob("nonfinite-*"))
    pupil.failing = True
    updates(rehearsal, pupil, 1, start=6)
    (file,) = tmp_path.glob("nonfinite-*.npz")
    saved = np.load(file)
    assert saved["deter"].dtype == np.float32
    np.testing.assert_array_equal(saved["number"], pupil.seen[-1]["number"])
    pupil.failing = False
    updates(rehearsal, pupil, 1, start=7)  # one that goes well ends the count
    pupil.failing = True
    updates(rehearsal, pupil, PATIENCE - 1, start=8)
    assert len(list(tmp_path.glob("nonfinite-*.npz"))) == 3  # no more than that
    with pytest.raises(UserError, match=rf"^{PATIENCE} updates in a row.*precision float32"):
        updates(rehearsal, pupil, 1, start=20)


def test_stopped_and_resumed_it_goes_on_the_same(tmp_path):
    whole, half = rehearsal_of(tmp_path / "whole", ratio=3.0), rehearsal_of(tmp_path / "half", ratio=3.0)
    pupils = Pupil(), Pupil()
    for rehearsal, pupil in zip((whole, half), pupils):
        updates(rehearsal, pupil, 11)
    saved = half.state()
    again = rehearsal_of(tmp_path / "half", ratio=3.0)
    again.restore(saved)
    assert updates(whole, pupils[0], 9, start=11) == updates(again, pupils[1], 9, start=11)
    assert len(pupils[0].seen) == len(pupils[1].seen)
    for left, right in zip(pupils[0].seen, pupils[1].seen):
        assert all(torch.equal(left[key], right[key]) for key in left)
    assert torch.equal(whole.replay.columns["deter"][:20], again.replay.columns["deter"][:20])


def test_without_its_rows_a_resumed_rehearsal_fills_anew(tmp_path):
    options = {"save": False, "warmup": 12, "ratio": 4.0, "pretrain": 7}
    rehearsal = rehearsal_of(tmp_path, **options)
    updates(rehearsal, Pupil(), 10)
    again = rehearsal_of(tmp_path, **options)
    again.restore(rehearsal.state())
    assert len(again.replay) == 0 and again.updates == rehearsal.updates > 0
    assert updates(again, Pupil(), 8, start=10) == [0] * 5 + [1] * 3  # what comes when learning begins came once


def test_new_episodes_after_a_resume_do_not_follow_the_old_ones(tmp_path):
    """Where environments cannot be restored, the newest remembered row becomes the last of its episode."""
    config = reverie.configure("dreamer_v3", "debug", task="toy_catch", logdir=str(tmp_path / "run"), run__steps=200)
    reverie.train(config, quiet=True)
    latest = tmp_path / "run" / "checkpoints" / "latest.pt"
    saved = torch.load(latest, weights_only=True)
    saved["collector"]["stream"]["vector"] = None
    torch.save(saved, latest)
    parts = make_parts(config)
    try:
        run = make_run(config, tmp_path / "run", parts, resume=True, quiet=True)
        replay = run.rehearsal.replay
        assert run.collector.rows["is_first"].all()
        assert replay.columns["is_last"][(replay.total - 1) % replay.rows].all()
        run.logger.close()
    finally:
        parts.close()
