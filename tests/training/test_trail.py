"""Updates that are looked at later, as on a GPU: the batch that was bad is the one that is written down."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import reverie
from reverie.agents.base import Agent, Learned
from reverie.build import make_parts, make_run
from reverie.collect.collector import Chunk
from reverie.config import store
from reverie.config.dreamer import ReplayConfig
from reverie.config.errors import UserError
from reverie.data.replay import Replay
from reverie.training.rehearsal import DUMPS, Rehearsal
from reverie.training.skips import PATIENCE, Skips
from reverie.training.trail import LOOK_EVERY, Trail

ENVS, EVERY = 2, 7
CONFIG = ReplayConfig(batch=2, length=4, ratio=8.0, warmup=0, prefill=0, capacity=2000, start="stored")


class Pupil(Agent):
    """Fails in some updates, counted from 1; those that go well write other latents back."""

    def __init__(self, bad):
        super().__init__()
        self.bad, self.seen = bad, []
        self.failed = torch.zeros((), dtype=torch.int64)

    def learn_replay(self, rows):
        self.seen.append({name: value.clone() for name, value in rows.items()})
        fails = len(self.seen) in self.bad
        self.failed.add_(1).mul_(int(fails))
        written = rows["deter"] if fails else torch.full_like(rows["deter"], len(self.seen))
        return Learned({}, {"deter": written}, updates=1)

    def failures(self):
        return self.failed


def rehearsal_of(folder, **options):
    config = replace(CONFIG, **options)
    selectors = {"streams": 1.0} if config.start == "carried" else {"uniform": 1.0}
    context = int(config.start == "stored")
    replay = Replay(ENVS, config.capacity, device=torch.device("cpu"), selectors=selectors, seed=1, context=context)
    rehearsal = Rehearsal(replay, config, folder)
    rehearsal.trail.every = EVERY
    return rehearsal


def learn(rehearsal, pupil, rounds, start=0):
    """Rounds of one row of each environment, which is numbered, and of the updates that follow it."""
    for number in range(start, start + rounds):
        rows = {"number": torch.full((2, ENVS), float(number)), "deter": torch.zeros(2, ENVS, 3, dtype=torch.bfloat16)}
        rows |= {key: torch.zeros(2, ENVS, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
        list(rehearsal.learn(pupil, Chunk(rows, [], ENVS), ENVS))


def dumps(folder):
    return {int(path.stem.partition("-")[2]): np.load(path) for path in sorted(folder.glob("nonfinite-*.npz"))}


def test_a_gpu_is_looked_at_now_and_then_and_a_cpu_each_time(tmp_path):
    skips = Skips(tmp_path, "updates", "", DUMPS)
    every = {kind: Trail(SimpleNamespace(device=torch.device(kind)), skips).every for kind in ("cuda", "cpu")}
    assert every == {"cuda": LOOK_EVERY, "cpu": 1} and LOOK_EVERY > 1


def plain(batch):
    return {
        name: (value.float() if value.is_floating_point() else value).cpu().numpy() for name, value in batch.items()
    }


@pytest.mark.parametrize("start", ["stored", "zeros", "carried"])
def test_the_batch_that_was_bad_is_written_down_and_not_the_last_one(tmp_path, start):
    rehearsal, pupil = rehearsal_of(tmp_path, start=start), Pupil(bad={EVERY + 3})
    learn(rehearsal, pupil, 10)
    while len(pupil.seen) < 2 * EVERY:
        assert not dumps(tmp_path)  # nobody has looked
        rehearsal.update(pupil)
    found = dumps(tmp_path)
    assert set(found) == {EVERY + 3}
    dump, batch = found[EVERY + 3], plain(pupil.seen[EVERY + 2])
    assert set(dump.files) == set(batch)
    for name, value in batch.items():
        if name != "deter":
            np.testing.assert_array_equal(dump[name], value, err_msg=name)
    # latents of the row that windows begin at are those of then, though updates have written others since
    np.testing.assert_array_equal(dump["deter"][:, 0], batch["deter"][:, 0])
    now = rehearsal.replay.at(pupil.seen[EVERY + 2]["index"])["deter"].float().numpy()
    assert (now[:, 0] != batch["deter"][:, 0]).any()
    np.testing.assert_array_equal(dump["deter"][:, 1:], now[:, 1:])


def test_windows_that_were_overwritten_before_the_look_are_left_out_and_said(tmp_path, caplog):
    rehearsal = rehearsal_of(tmp_path, capacity=20 * ENVS, ratio=0.0)
    learn(rehearsal, Pupil(bad=()), 20)
    replay, trail = rehearsal.replay, rehearsal.trail
    index = torch.tensor([[0], [10]]) * ENVS + torch.arange(5) * ENVS  # from rows 0 and 10 on
    batch = replay.at(index) | {"index": index}
    trail.add(8, torch.tensor(1), batch)
    trail.add(9, torch.tensor(0), batch)
    learn(rehearsal, Pupil(bad=()), 3, start=20)  # which take the places of rows 0 to 2
    trail.look()
    (dump,) = dumps(tmp_path).values()
    assert dump["number"].tolist() == [[10, 11, 12, 13, 14]] and dump["index"].tolist() == index[1:].tolist()
    assert "1 of 2 windows of update 8 were overwritten since" in caplog.text
    assert "nonfinite-8.npz" in caplog.text


def test_failures_in_a_row_stop_the_run_though_some_went_well_before_the_look(tmp_path):
    bad = range(3, 3 + PATIENCE)
    rehearsal, pupil = rehearsal_of(tmp_path), Pupil(bad=set(bad))
    rehearsal.trail.every = LOOK_EVERY
    learn(rehearsal, pupil, 10)
    with pytest.raises(UserError, match=rf"^{PATIENCE} updates in a row"):
        while len(pupil.seen) < LOOK_EVERY:
            rehearsal.update(pupil)
    assert len(pupil.seen) == LOOK_EVERY
    found = dumps(tmp_path)
    assert list(found) == list(bad)[:DUMPS]
    for number, dump in found.items():
        np.testing.assert_array_equal(dump["number"], pupil.seen[number - 1]["number"].numpy())


def test_what_is_left_is_looked_at_before_a_checkpoint(tmp_path):
    rehearsal, pupil = rehearsal_of(tmp_path), Pupil(bad={1})
    learn(rehearsal, pupil, 5)
    rehearsal.trail.every = 10**6
    assert not dumps(tmp_path)
    rehearsal.state()
    assert set(dumps(tmp_path)) == {1}
    rehearsal.state()
    assert len(dumps(tmp_path)) == 1 and not rehearsal.trail.passed


def test_between_two_looks_nobody_waits_for_numbers(tmp_path):
    """Tensors of the device "meta" have none: whatever asked for them would fail."""
    replay = Replay(ENVS, 100, device=torch.device("cpu"), selectors={"uniform": 1.0})
    trail = Trail(replay, Skips(tmp_path, "updates", "", 3))
    assert trail.every == 1
    replay.mutable.add("deter")
    replay.columns["deter"] = replay.columns["number"] = torch.zeros(50, ENVS)
    trail.every = 3
    batch = {name: torch.empty(4, 6, device="meta") for name in ("deter", "number", "index")}
    batch["continues"] = torch.empty(4, dtype=torch.bool, device="meta")
    for number in range(2):
        trail.add(number, torch.zeros((), dtype=torch.int64, device="meta"), batch)
    kept = trail.passed[-1]
    assert kept.begun.keys() == {"deter"} and kept.about.keys() == {"continues"}
    assert kept.begun["deter"].untyped_storage().nbytes() == 4 * 4  # and not all of the batch


def test_a_dreamer_that_is_looked_at_now_and_then_leaves_its_bad_batch(tmp_path):
    config = reverie.configure("dreamer_v3", "debug", task="toy_catch", logdir=str(tmp_path), run__fast="off")
    store.save(config, tmp_path)
    parts = make_parts(config)
    try:
        run = make_run(config, tmp_path, parts, resume=False, quiet=True)
        rehearsal, agent = run.rehearsal, run.agent
        while not rehearsal.started:
            run.round()
        rehearsal.trail.look()
        rehearsal.trail.every = 6
        begun, seen = rehearsal.updates, {}
        learn_replay = agent.learn_replay

        def spoiled(rows):
            seen[rehearsal.updates + 1] = {name: value.clone() for name, value in rows.items()}
            bad = rehearsal.updates == begun + 2
            return learn_replay(rows | {"reward": rows["reward"] * torch.inf} if bad else rows)

        agent.learn_replay = spoiled
        for _ in range(6):
            rehearsal.update(agent)
        (number,) = found = dumps(tmp_path)
        assert number == begun + 3
        for name, value in plain(seen[number]).items():
            read = value[:, :1] if name in ("deter", "stoch") else value
            dumped = found[number][name]
            np.testing.assert_array_equal(dumped[:, :1] if name in ("deter", "stoch") else dumped, read, err_msg=name)
        run.logger.close()
    finally:
        parts.close()
