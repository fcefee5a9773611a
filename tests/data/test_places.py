"""A replay holds the same wherever it lies: in memory, in memory that a GPU reads, in the GPU's own, in files."""

import pytest
import torch

from reverie.data.replay import Replay
from reverie.data.select import Selector

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
LENGTH = 5
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
PLACES = [
    pytest.param(storage, device, marks=needs_gpu if device is CUDA else ())
    for storage, device in [("disk", CPU), ("ram", CUDA), ("disk", CUDA), ("pinned", CUDA), ("gpu", CUDA)]
]


class All(Selector):
    """Every window there is, in order: what is drawn differs between devices."""

    def pick(self, count, span):
        return torch.arange(span.lowest, span.lowest + span.starts, device=self.ring.device)


def windows(replay):
    """All windows, as they come to the device that learns."""
    span = replay._span(LENGTH)
    found = replay.sample(span.starts, LENGTH, All(replay.ring, replay.selection.weighting))
    assert all(value.device == replay.device for value in found.values())
    return found


def assert_equal(left, right):
    assert left.keys() == right.keys() and left
    for name in left:
        assert left[name].dtype == right[name].dtype and torch.equal(left[name].cpu(), right[name].cpu()), name


def lived(life, given, until):
    """Everything that is held after each of some adds, with latents written back late and of windows that overlap."""
    seen, late = [], None
    for stop in until:
        life.replay.add(
            {name: value.to(life.replay.device) for name, value in given(life.replay.total, stop, 2).items()}
        )
        found = windows(life.replay)
        if late is not None:
            life.replay.update(late["index"], {"deter": late["deter"] + 1})  # some of it is overwritten by now
        number = torch.arange(len(found["step"]), device=life.replay.device)[:, None, None]  # the last window counts
        life.replay.update(found["index"], {"deter": (found["deter"] + number % 50).bfloat16()})
        late = found
        seen += [found, windows(life.replay)]
    return seen


@pytest.mark.parametrize(("storage", "device"), PLACES)
def test_windows_are_those_of_plain_memory_from_the_first_row_to_a_resumed_run(storage, device, born, given, tmp_path):
    plain, other = born(tmp_path / "plain"), born(tmp_path / "other", storage, device=device)
    rounds = (6, 13, 29, 31, 40, 95, 96)  # rings of 30 rows, one add longer than they
    for left, right in zip(lived(plain, given, rounds), lived(other, given, rounds), strict=True):
        assert_equal(left, right)
    assert plain.replay.first == other.replay.first == 66
    assert windows(other.replay)["deter"].unique().numel() > 10
    plain.save()
    other.save()
    back, again = born(tmp_path / "plain"), born(tmp_path / "other", storage, device=device)
    assert back.resume() == again.resume() == 0
    assert_equal(windows(back.replay), windows(again.replay))
    for left, right in zip(lived(back, given, (97, 110)), lived(again, given, (97, 110)), strict=True):
        assert_equal(left, right)


@pytest.mark.parametrize(("storage", "device"), [place for place in PLACES if place.values[0] != "disk"])
def test_what_was_saved_in_one_place_is_resumed_in_another(storage, device, born, given, tmp_path):
    plain = born(tmp_path)
    lived(plain, given, (20, 47))
    plain.save()
    moved = born(tmp_path, storage, device=device)
    assert moved.resume() == 0
    assert_equal(windows(plain.replay), windows(moved.replay))
    lived(moved, given, (50,))
    moved.save()
    home = born(tmp_path)
    assert home.resume() == 0
    assert_equal(windows(moved.replay), windows(home.replay))


@needs_gpu
@pytest.mark.parametrize("storage", ["ram", "pinned", "gpu"])
def test_a_run_that_stops_and_goes_on_draws_as_one_that_does_not(storage, born, tmp_path):
    whole = born(tmp_path / "whole", storage, device=CUDA)
    expected = [whole.live(20), whole.live(40)]
    for part, count in zip(expected, (20, 40), strict=True):
        life = born(tmp_path / "parts", storage, device=CUDA)
        if count == 40:
            assert life.resume() == 0
        assert_equal(life.live(count), part)
        life.save()


@needs_gpu
def test_columns_lie_where_they_are_asked_to():
    rows = {"step": torch.arange(64).view(32, 2)}
    before = torch.cuda.memory_allocated()
    held = {storage: Replay(2, 1 << 20, storage=storage, device=CUDA, selectors={"uniform": 1.0})
            for storage in ("ram", "pinned", "gpu")}  # fmt: skip
    taken = {}
    for storage, replay in held.items():
        replay.add(rows)
        taken[storage] = torch.cuda.memory_allocated() - before
        before = torch.cuda.memory_allocated()
    assert taken["ram"] < 1 << 20 and taken["pinned"] < 1 << 20 and taken["gpu"] >= 8 << 20
    assert held["ram"].columns["step"].device == CPU and held["ram"].arrays
    assert held["pinned"].columns["step"].device == held["gpu"].columns["step"].device == CUDA
