"""Files of a replay that are hurt or gone: what comes back, and what is said."""

import logging
from itertools import pairwise

import pytest
import torch


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
def test_rows_of_a_damaged_file_are_left_out_and_leave_an_end_and_a_start(born, how, number, tmp_path, caplog):
    life = born(tmp_path, capacity=200)
    for _ in range(3):
        life.live(15)
        life.save()
    hurt(life.archive.folder / f"rows-{number + 1:06d}-0000.npz", how)
    again = born(tmp_path, capacity=200)
    with caplog.at_level(logging.WARNING, logger="reverie"):
        assert again.resume() == 1
    assert f"rows-{number + 1:06d}-0000.npz" in caplog.text and "60 steps" in caplog.text
    assert len(again.replay) == 60
    again.see(45, 46)
    again.see(46, 47)
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
    whole = born(tmp_path, capacity=200)
    assert whole.resume() == 0
    torch.testing.assert_close(whole.live(5), again.live(5), rtol=0, atol=0)


def test_a_lost_tail_is_remembered_until_the_next_row(born, tmp_path):
    life = born(tmp_path)
    for _ in range(2):
        life.live(13)
        life.save()
    hurt(life.archive.folder / "rows-000002-0000.npz", "missing")
    for lost in (1, 0):
        again = born(tmp_path)
        assert again.resume() == lost
        again.save()
    again.see(26, 28)
    sample = again.replay.sample(1, 15)
    assert (sample["step"][0] % 1_000_000).tolist() == [*range(13), 26, 27]
    assert sample["is_last"][0].nonzero().flatten().tolist() == [9, 12]
    assert sample["is_first"][0].nonzero().flatten().tolist() == [0, 10, 13]


def test_after_damage_selectors_start_over(born, tmp_path):
    life = born(tmp_path, selectors={"online": 1.0})
    for _ in range(2):
        life.live(10)
        life.save()
    hurt(life.archive.folder / "rows-000001-0000.npz", "missing")
    again = born(tmp_path, selectors={"online": 1.0})
    assert again.resume() == 1
    again.see(20, 25)
    assert (again.replay.sample(2, 5)["step"] % 1_000_000).tolist() == [list(range(20, 25))] * 2


def test_damaged_latents_are_zero_and_rows_stay(born, tmp_path):
    life = born(tmp_path, capacity=200)
    life.live(30)
    life.save()
    hurt(life.archive.folder / "latents-000001-0000.npz", "flipped")
    again = born(tmp_path, capacity=200)
    assert again.resume() == 1
    assert len(again.replay) == 60 and not again.replay.columns["deter"][:30].any()


def test_without_its_folder_a_replay_starts_empty(born, tmp_path, caplog):
    life = born(tmp_path)
    life.live(40)
    torch.save(life.replay.state(), tmp_path / "state.pt")
    for storage in ("ram", "disk"):
        again = born(tmp_path, storage)
        with caplog.at_level(logging.WARNING, logger="reverie"):
            assert again.resume() == 0
        assert len(again.replay) == 0 and "is gone" in caplog.text
        assert (again.live(20)["step"] % 1_000_000).min() >= 40
