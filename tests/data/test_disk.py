"""Runs that stop and go on: what is saved, what comes back, and what happens where files are hurt."""

import json
import logging
from itertools import pairwise

import pytest
import torch

from reverie.config.errors import UserError
from reverie.data.disk import Archive
from reverie.data.replay import Replay

CPU = torch.device("cpu")
MIXED = {"uniform": 0.4, "online": 0.3, "prioritised": 0.3}


class Life:
    """A run in miniature: it adds rows, learns from windows and writes latents back, all of it from its own state."""

    def __init__(self, folder, storage="ram", envs=2, capacity=60, selectors=None, **archive):
        options = {"selectors": selectors or MIXED, "folder": folder / "mapped", "seed": 4}
        self.replay = Replay(envs, capacity, storage=storage, device=CPU, **options)
        self.archive = Archive(folder / "saved", **archive)
        self.salt = 0

    def live(self, steps):
        """Everything that the run samples on the way."""
        seen = []
        for _ in range(steps):
            t, envs = self.replay.total, self.replay.envs
            self.replay.add(rows(t, t + 1, envs, self.salt))
            if self.replay.ready(3, 5):
                sample = self.replay.sample(3, 5)
                latents = sample["deter"] + sample["step"][..., None] % 13
                priority = (sample["step"] % 7).float()
                self.replay.update(sample["index"], {"deter": latents, "priority": priority})
                seen.append(sample)
        return {name: torch.stack([sample[name] for sample in seen]) for name in seen[0]} if seen else {}

    def save(self):
        """The state that a checkpoint would keep, as it comes out of a file."""
        self.archive.save(self.replay)
        torch.save(self.replay.state(), self.archive.folder.parent / "state.pt")

    def resume(self):
        state = torch.load(self.archive.folder.parent / "state.pt", weights_only=True)
        return self.archive.load(self.replay, state)


def rows(start, stop, envs, salt=0):
    time = torch.arange(start, stop)[:, None].expand(-1, envs)
    step = time + torch.arange(envs) * 1_000_000
    return {
        "step": step,
        "image": ((step[..., None, None] + salt) % 251).expand(-1, -1, 4, 4).byte(),
        "is_first": time % 10 == 0,
        "is_last": time % 10 == 9,
        "deter": torch.zeros(stop - start, envs, 3, dtype=torch.bfloat16),
    }


def assert_equal(left, right):
    assert left.keys() == right.keys() and left
    for name in left:
        assert left[name].dtype == right[name].dtype and torch.equal(left[name], right[name]), name


@pytest.mark.parametrize("storage", ["ram", "disk"])
@pytest.mark.parametrize("selectors", [MIXED, {"streams": 1.0}], ids=["mixed", "streams"])
@pytest.mark.parametrize("parts", [(3, 40), (20, 20), (47, 40), (10, 10, 10, 10, 10, 30), (100, 0, 50)], ids=str)
def test_a_run_that_stops_and_goes_on_equals_one_that_does_not(parts, selectors, storage, tmp_path):
    whole = Life(tmp_path / "whole", storage, selectors=selectors, file_bytes=400)
    expected = [whole.live(part) for part in parts]
    for number, part in enumerate(parts):
        life = Life(tmp_path / "parts", storage, selectors=selectors, file_bytes=400)
        if number:
            assert life.resume() == 0
        seen = life.live(part)
        if expected[number]:
            assert_equal(seen, expected[number])
        life.save()
    assert len(life.replay) == len(whole.replay) and life.replay.first == whole.replay.first


def test_a_save_writes_only_new_rows_but_latents_whole(tmp_path):
    life = Life(tmp_path, capacity=1000)
    life.live(20)
    life.save()
    before = {each.name: each.stat().st_mtime_ns for each in life.archive.folder.glob("*.npz")}
    assert sorted(before) == ["latents-000001-0000.npz", "rows-000001-0000.npz"]
    life.live(20)
    life.save()
    after = {each.name: each.stat().st_mtime_ns for each in life.archive.folder.glob("*.npz")}
    assert sorted(after.keys() - before.keys()) == ["latents-000002-0000.npz", "rows-000002-0000.npz"]
    assert {name: after[name] for name in before} == before
    life.live(1)
    life.save()
    assert not (life.archive.folder / "latents-000001-0000.npz").exists()
    index = json.loads((life.archive.folder / "index.json").read_text())
    assert [chunk[1:3] for chunk in index["chunks"]] == [[0, 20], [20, 40], [40, 41]]


def test_files_that_the_ring_has_overwritten_are_deleted(tmp_path):
    life = Life(tmp_path, capacity=60)
    for _ in range(12):
        life.live(10)
        life.save()
        assert len(list(life.archive.folder.glob("rows-*.npz"))) <= 4  # three of a full ring, and the save before
    assert Life(tmp_path).resume() == 0


def test_a_run_that_dies_between_save_and_checkpoint_goes_on_from_the_checkpoint(tmp_path):
    life = Life(tmp_path)
    life.live(50)
    life.save()
    other = Life(tmp_path)
    other.resume()
    expected = other.live(30)
    life.salt = 100  # what it sees from now on never happens in the run that goes on
    life.live(25)
    life.archive.save(life.replay)  # the checkpoint that belongs to it is never written
    again = Life(tmp_path)
    assert again.resume() == 0
    assert_equal(again.live(30), expected)
    again.save()
    last = Life(tmp_path)
    assert last.resume() == 0
    assert_equal(last.live(10), again.live(10))


def test_a_run_that_dies_while_saving_keeps_the_save_before(tmp_path):
    life = Life(tmp_path)
    life.live(30)
    life.save()
    life.live(3)
    folder = life.archive.folder
    (folder / "rows-000002-0000.npz.partial").mkdir()  # in the way of the next file
    with pytest.raises(UserError, match="the save before it is kept"):
        life.archive.save(life.replay)
    (folder / "rows-000002-0000.npz.partial").rmdir()
    (folder / "rows-000002-0000.npz").write_bytes(b"left by a run that died")
    again = Life(tmp_path)
    assert again.resume() == 0 and len(again.replay) == 60
    again.live(2)
    again.save()
    assert sorted(each.name for each in folder.glob("rows-*")) == ["rows-000001-0000.npz", "rows-000003-0000.npz"]


def hurt(path, how):
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))


@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_rows_of_a_damaged_file_are_left_out_and_leave_an_end_and_a_start(how, number, tmp_path, caplog):
    life = Life(tmp_path, capacity=200)
    for _ in range(3):
        life.live(15)
        life.save()
    hurt(life.archive.folder / f"rows-{number + 1:06d}-0000.npz", how)
    again = Life(tmp_path, capacity=200)
    with caplog.at_level(logging.WARNING, logger="reverie"):
        assert again.resume() == 1
    assert f"rows-{number + 1:06d}-0000.npz" in caplog.text and "60 steps" in caplog.text
    assert len(again.replay) == 60
    again.replay.add(rows(45, 46, 2))
    again.replay.add(rows(46, 47, 2))
    sample = again.replay.sample(4, 32)
    kept = [t for t in range(47) if t // 15 != number or t >= 45]
    assert (sample["step"] % 1_000_000 == torch.tensor(kept)).all()
    jump = torch.tensor([a + 1 != b for a, b in pairwise(kept)])
    time = torch.tensor(kept)
    assert (sample["is_last"][:, :-1] == ((time[:-1] % 10 == 9) | jump)).all()
    assert (sample["is_first"][:, 1:] == ((time[1:] % 10 == 0) | jump)).all()
    latents = life.replay.columns["deter"][kept[:-2]]
    assert torch.equal(again.replay.columns["deter"][:30], latents) and latents.any()
    again.live(5)
    again.save()
    whole = Life(tmp_path, capacity=200)
    assert whole.resume() == 0
    assert_equal(whole.live(5), again.live(5))


def test_a_lost_tail_is_remembered_until_the_next_row(tmp_path):
    life = Life(tmp_path)
    for _ in range(2):
        life.live(13)
        life.save()
    hurt(life.archive.folder / "rows-000002-0000.npz", "missing")
    for lost in (1, 0):
        again = Life(tmp_path)
        assert again.resume() == lost
        again.save()
    again.replay.add(rows(26, 28, 2))
    sample = again.replay.sample(1, 15)
    assert (sample["step"][0] % 1_000_000).tolist() == [*range(13), 26, 27]
    assert sample["is_last"][0].nonzero().flatten().tolist() == [9, 12]
    assert sample["is_first"][0].nonzero().flatten().tolist() == [0, 10, 13]


def test_after_damage_selectors_start_over(tmp_path):
    life = Life(tmp_path, selectors={"online": 1.0})
    for _ in range(2):
        life.live(10)
        life.save()
    hurt(life.archive.folder / "rows-000001-0000.npz", "missing")
    again = Life(tmp_path, selectors={"online": 1.0})
    assert again.resume() == 1
    again.replay.add(rows(20, 25, 2))
    assert (again.replay.sample(2, 5)["step"] % 1_000_000).tolist() == [list(range(20, 25))] * 2


def test_a_smaller_replay_takes_the_newest_rows(tmp_path):
    life = Life(tmp_path, selectors={"uniform": 1.0}, file_bytes=400)
    life.live(50)
    life.save()
    again = Life(tmp_path, selectors={"uniform": 1.0}, capacity=22)
    assert again.resume() == 0
    assert (again.replay.first, again.replay.total) == (39, 50)
    for t in range(39, 50):
        for name, column in again.replay.columns.items():
            assert torch.equal(column[t % 11], life.replay.columns[name][t % 30]), name


def test_damaged_latents_are_zero_and_rows_stay(tmp_path):
    life = Life(tmp_path, capacity=200)
    life.live(30)
    life.save()
    hurt(life.archive.folder / "latents-000001-0000.npz", "flipped")
    again = Life(tmp_path, capacity=200)
    assert again.resume() == 1
    assert len(again.replay) == 60 and not again.replay.columns["deter"][:30].any()


def test_without_its_folder_a_replay_starts_empty(tmp_path, caplog):
    life = Life(tmp_path)
    life.live(40)
    torch.save(life.replay.state(), tmp_path / "state.pt")
    for storage in ("ram", "disk"):
        again = Life(tmp_path, storage)
        with caplog.at_level(logging.WARNING, logger="reverie"):
            assert again.resume() == 0
        assert len(again.replay) == 0 and "is gone" in caplog.text
        assert (again.live(20)["step"] % 1_000_000).min() >= 40


def test_a_replay_that_was_never_filled_comes_back(tmp_path):
    life = Life(tmp_path)
    life.save()
    again = Life(tmp_path)
    assert again.resume() == 0
    assert_equal(again.live(20), life.live(20))


def test_latents_may_be_saved_once_only(tmp_path):
    life = Life(tmp_path, exact=False)
    life.live(20)
    life.save()
    stale = life.replay.columns["deter"][:20].clone()
    life.live(5)
    life.save()
    assert not list(life.archive.folder.glob("latents-*"))
    again = Life(tmp_path, exact=False)
    assert again.resume() == 0
    assert torch.equal(again.replay.columns["deter"][:20], stale)
    assert not torch.equal(stale, life.replay.columns["deter"][:20])


def test_other_environments_are_refused(tmp_path):
    life = Life(tmp_path)
    life.live(10)
    life.save()
    with pytest.raises(UserError, match="of 2 environments, not 3"):
        Life(tmp_path, envs=3).resume()
    mapped = Life(tmp_path, "disk")
    mapped.live(10)
    mapped.save()
    with pytest.raises(UserError, match="has 30 rows of 2 environments, not 50 of 2"):
        Life(tmp_path, "disk", capacity=100).resume()


def test_on_disk_rows_written_after_the_checkpoint_are_not_mistaken_for_old_ones(tmp_path):
    life = Life(tmp_path, "disk", selectors={"uniform": 1.0})
    life.live(50)
    life.save()
    life.live(7)  # and dies
    for _ in range(2):
        again = Life(tmp_path, "disk", selectors={"uniform": 1.0})
        again.resume()
        assert (again.replay.first, again.replay.total) == (27, 50)
        seen = again.live(4)["step"]  # and dies again, earlier than the first time
        assert (seen.diff(dim=-1) == 1).all()
    assert again.replay.first == 27 and len(again.replay) == 27 * 2


def test_on_disk_a_file_cut_short_is_refused(tmp_path):
    life = Life(tmp_path, "disk")
    life.live(10)
    life.save()
    path = tmp_path / "mapped" / "image.bin"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="cut short"):
        Life(tmp_path, "disk").resume()


def test_on_disk_a_new_run_takes_nothing_from_an_old_one(tmp_path):
    Life(tmp_path, "disk").live(40)
    life = Life(tmp_path, "disk")
    life.live(10)
    life.save()
    again = Life(tmp_path, "disk")
    again.resume()
    assert (again.replay.first, again.replay.total) == (0, 10)
