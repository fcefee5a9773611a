"""Runs that stop and go on: what is saved, what comes back, and what is refused."""

import json

import pytest
import torch

from reverie.config.errors import UserError


def assert_equal(left, right):
    assert left.keys() == right.keys() and left
    for name in left:
        assert left[name].dtype == right[name].dtype and torch.equal(left[name], right[name]), name


@pytest.mark.parametrize("storage", ["ram", "disk"])
@pytest.mark.parametrize("selectors", [None, {"streams": 1.0}], ids=["mixed", "streams"])
@pytest.mark.parametrize("parts", [(3, 40), (20, 20), (47, 40), (10, 10, 10, 10, 10, 30), (100, 0, 50)], ids=str)
def test_a_run_that_stops_and_goes_on_equals_one_that_does_not(born, parts, selectors, storage, tmp_path):
    whole = born(tmp_path / "whole", storage, selectors=selectors, file_bytes=400)
    expected = [whole.live(part) for part in parts]
    for number, part in enumerate(parts):
        life = born(tmp_path / "parts", storage, selectors=selectors, file_bytes=400)
        if number:
            assert life.resume() == 0
        seen = life.live(part)
        if expected[number]:
            assert_equal(seen, expected[number])
        life.save()
    assert len(life.replay) == len(whole.replay) and life.replay.first == whole.replay.first


def test_a_save_writes_only_new_rows_but_latents_whole(born, tmp_path):
    life = born(tmp_path, capacity=1000)
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


def test_files_that_the_ring_has_overwritten_are_deleted(born, tmp_path):
    life = born(tmp_path, capacity=60)
    for _ in range(12):
        life.live(10)
        life.save()
        assert len(list(life.archive.folder.glob("rows-*.npz"))) <= 4  # three of a full ring, and the save before
    assert born(tmp_path).resume() == 0


def test_a_run_that_dies_between_save_and_checkpoint_goes_on_from_the_checkpoint(born, tmp_path):
    life = born(tmp_path)
    life.live(50)
    life.save()
    other = born(tmp_path)
    other.resume()
    expected = other.live(30)
    life.salt = 100  # what it sees from now on never happens in the run that goes on
    life.live(25)
    life.archive.save(life.replay)  # the checkpoint that belongs to it is never written
    again = born(tmp_path)
    assert again.resume() == 0
    assert_equal(again.live(30), expected)
    again.save()
    last = born(tmp_path)
    assert last.resume() == 0
    assert_equal(last.live(10), again.live(10))


def test_a_run_that_dies_while_saving_keeps_the_save_before(born, tmp_path):
    life = born(tmp_path)
    life.live(30)
    life.save()
    life.live(3)
    folder = life.archive.folder
    (folder / ".rows-000002-0000.npz.partial").mkdir()  # in the way of the next file
    with pytest.raises(UserError, match="the save before it is kept"):
        life.archive.save(life.replay)
    (folder / ".rows-000002-0000.npz.partial").rmdir()
    (folder / "rows-000002-0000.npz").write_bytes(b"left by a run that died")
    again = born(tmp_path)
    assert again.resume() == 0 and len(again.replay) == 60
    again.live(2)
    again.save()
    assert sorted(each.name for each in folder.glob("rows-*")) == ["rows-000001-0000.npz", "rows-000003-0000.npz"]


def test_a_smaller_replay_takes_the_newest_rows(born, tmp_path):
    life = born(tmp_path, selectors={"uniform": 1.0}, file_bytes=400)
    life.live(50)
    life.save()
    again = born(tmp_path, selectors={"uniform": 1.0}, capacity=22)
    assert again.resume() == 0
    assert (again.replay.first, again.replay.total) == (39, 50)
    for t in range(39, 50):
        for name, column in again.replay.columns.items():
            assert torch.equal(column[t % 11], life.replay.columns[name][t % 30]), name


def test_a_replay_that_was_never_filled_comes_back(born, tmp_path):
    life = born(tmp_path)
    life.save()
    again = born(tmp_path)
    assert again.resume() == 0
    assert_equal(again.live(20), life.live(20))


def test_latents_may_be_saved_once_only(born, tmp_path):
    life = born(tmp_path, exact=False)
    life.live(20)
    life.save()
    stale = life.replay.columns["deter"][:20].clone()
    life.live(5)
    life.save()
    assert not list(life.archive.folder.glob("latents-*"))
    again = born(tmp_path, exact=False)
    assert again.resume() == 0
    assert torch.equal(again.replay.columns["deter"][:20], stale)
    assert not torch.equal(stale, life.replay.columns["deter"][:20])


def test_other_environments_are_refused(born, tmp_path):
    life = born(tmp_path)
    life.live(10)
    life.save()
    with pytest.raises(UserError, match="of 2 environments, not 3"):
        born(tmp_path, envs=3).resume()
    mapped = born(tmp_path, "disk")
    mapped.live(10)
    mapped.save()
    with pytest.raises(UserError, match="has 30 rows of 2 environments, not 50 of 2"):
        born(tmp_path, "disk", capacity=100).resume()


def test_on_disk_rows_written_after_the_checkpoint_are_not_mistaken_for_old_ones(born, tmp_path):
    life = born(tmp_path, "disk", selectors={"uniform": 1.0})
    life.live(50)
    life.save()
    life.live(7)  # and dies
    for _ in range(2):
        again = born(tmp_path, "disk", selectors={"uniform": 1.0})
        again.resume()
        assert (again.replay.first, again.replay.total) == (27, 50)
        seen = again.live(4)["step"]  # and dies again, earlier than the first time
        assert (seen.diff(dim=-1) == 1).all()
    assert again.replay.first == 27 and len(again.replay) == 27 * 2


def test_on_disk_a_file_cut_short_is_refused(born, tmp_path):
    life = born(tmp_path, "disk")
    life.live(10)
    life.save()
    path = tmp_path / "mapped" / "image.bin"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="cut short"):
        born(tmp_path, "disk").resume()


def test_on_disk_a_new_run_takes_nothing_from_an_old_one(born, tmp_path):
    born(tmp_path, "disk").live(40)
    life = born(tmp_path, "disk")
    life.live(10)
    life.save()
    again = born(tmp_path, "disk")
    again.resume()
    assert (again.replay.first, again.replay.total) == (0, 10)
