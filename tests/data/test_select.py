"""Each selector against its law, and what only it promises."""

import math

import pytest
import torch

from reverie.config.errors import UserError
from reverie.data.mixture import Mixture, selection
from reverie.data.replay import Replay
from reverie.data.select import Newest, Ring, Weighting

CPU = torch.device("cpu")


def make(selectors, envs=2, rows=30, added=45, **options):
    """A replay in which each row holds its time, environment and flags; the ring has wrapped if added > rows."""
    replay = Replay(envs, envs * rows, device=CPU, selectors=selectors, **options)
    if added:
        add(replay, 0, added)
    return replay


def add(replay, start, stop, episode=10):
    time = torch.arange(start, stop)[:, None].expand(-1, replay.envs)
    replay.add({"time": time, "env": torch.arange(replay.envs).expand(len(time), -1), "is_last": time % episode == 9})


def starts(replay, length, count=40_000, batch=1000):
    """How often each (time, environment) started a window."""
    counts = torch.zeros(1000, replay.envs)
    for _ in range(count // batch):
        sample = replay.sample(batch, length)
        counts.index_put_((sample["time"][:, 0], sample["env"][:, 0]), torch.ones(batch), accumulate=True)
    return counts


def assert_law(counts, expected):
    """Chi-square below its mean plus five deviations, and nothing where the law has nothing."""
    assert (counts[expected == 0] == 0).all()
    seen, expected = counts[expected > 0], expected[expected > 0] / expected.sum() * counts.sum()
    freedom = len(seen) - 1
    assert ((seen - expected) ** 2 / expected).sum() < freedom + 5 * math.sqrt(2 * freedom)


def test_uniform_makes_every_start_equally_likely():
    law = torch.zeros(1000, 2)
    law[15 : 45 - 6 + 1] = 1
    assert_law(starts(make({"uniform": 1.0}), 6), law)


def test_uniform_with_ends_moves_windows_back_to_the_end_of_an_episode():
    replay = make({"uniform": 1.0}, envs=1, added=30, weighting=Weighting(ends=0.5))
    law = torch.zeros(1000, 1)
    for start in range(30 - 4 + 1):
        end = next((t for t in range(start, start + 4) if t % 10 == 9), None)
        law[start] += 1 if end is None else 0.5
        if end is not None:
            law[end - 3] += 0.5
    assert_law(starts(replay, 4), law)


def test_ends_never_move_a_window_before_the_oldest_row():
    replay = make({"uniform": 1.0}, added=47, weighting=Weighting(ends=1.0))
    time = replay.sample(2000, 6)["time"]
    assert (time.diff(dim=1) == 1).all() and int(time.min()) == 17
    moved = time[(time[:, 0] >= 20)]
    assert (((moved % 10 == 9).any(1)) == (moved[:, -1] % 10 == 9)).all()


@pytest.mark.parametrize("scale", [3.0, 1000.0])
def test_recent_follows_one_over_age(scale):
    replay = make({"recent": 1.0}, weighting=Weighting(scale=scale))
    law = torch.zeros(1000, 2)
    for age in range(25):
        law[39 - age] = math.log((age + 1 + scale) / (age + scale))
    assert_law(starts(replay, 6), law)


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("added", [30, 41, 45, 58])
def test_prioritised_follows_priorities_wherever_the_seam_is(added, context):
    replay = make({"prioritised": 1.0}, added=added, context=context, weighting=Weighting(alpha=0.5))
    rows = torch.arange(added - 30, added)
    index = rows[None] * 2 + torch.arange(2)[:, None]
    replay.update(index, {"priority": (index % 7 + 1.0) ** 2})
    law = torch.zeros(1000, 2)
    law[added - 30 : added - 5] = (index % 7 + 1.0).T[context : context + 25]
    assert_law(starts(replay, 6), law)


@pytest.mark.parametrize("new", [2, 15, 30, 40])
def test_prioritised_gives_new_rows_the_highest_priority_there_was(new):
    replay = make({"prioritised": 1.0}, envs=1, added=20, weighting=Weighting(alpha=1.0))
    replay.update(torch.arange(20)[None], {"priority": torch.cat([torch.ones(19), torch.tensor([8.0])])[None]})
    add(replay, 20, 20 + new)
    law = torch.zeros(1000, 1)
    law[:19], law[19 : 20 + new] = 1, 8
    law[: max(0, new - 10)] = 0
    assert_law(starts(replay, 1), law)


def test_prioritised_survives_losses_that_are_no_numbers():
    replay = make({"prioritised": 1.0}, envs=1, added=20, weighting=Weighting(alpha=1.0))
    broken = torch.ones(20)
    broken[3], broken[4], broken[5] = math.nan, math.inf, -1
    replay.update(torch.arange(20)[None], {"priority": broken[None]})
    law = torch.ones(20, 1)
    law[3:6] = 0
    assert_law(starts(replay, 1)[:20], law)


def test_late_priorities_of_overwritten_steps_are_left_out():
    replay = make({"prioritised": 1.0}, envs=1, added=30, weighting=Weighting(alpha=1.0))
    index = torch.arange(30)[None]
    add(replay, 30, 35)
    replay.update(index, {"priority": torch.full((1, 30), 1e-9)})
    assert int(replay.sample(1000, 1)["time"].min()) >= 30


def test_priorities_without_such_a_selector_change_nothing():
    replay = make({"uniform": 1.0})
    replay.update(replay.sample(4, 3)["index"], {"priority": torch.ones(4, 3)})
    assert replay.mutable == set()


@pytest.mark.parametrize("context", [0, 1])
def test_online_hands_out_every_window_once_in_order(context):
    replay = make({"online": 1.0}, rows=100, added=0, context=context)
    seen, stride = [], 8 - context
    for t in range(90):
        add(replay, t, t + 1)
        fresh = 0 if t < 7 else (t - 7) // stride * 2 + 2 - len(seen)
        if fresh:
            sample = replay.sample(fresh, 8)
            seen += list(zip(sample["time"][:, 0].tolist(), sample["env"][:, 0].tolist()))
    assert seen == [(time, env) for time in range(0, 90 - 7, stride) for env in range(2)]


def test_online_hands_out_a_backlog_in_batches_that_cut_through_the_environments():
    replay = make({"online": 1.0}, envs=3, rows=40, added=40)
    seen = [pair for _ in range(3) for pair in _heads(replay.sample(4, 10))]
    assert seen == [(time, env) for time in (0, 10, 20, 30) for env in range(3)]


def test_online_falls_back_to_uniform_without_losing_its_place():
    replay = make({"online": 1.0}, rows=100, added=20)
    assert _heads(replay.sample(6, 8))[:4] == [(0, 0), (0, 1), (8, 0), (8, 1)]
    others = {pair for _ in range(200) for pair in _heads(replay.sample(6, 8))}
    assert others == {(time, env) for time in range(13) for env in range(2)}
    add(replay, 20, 24)
    assert _heads(replay.sample(3, 8))[:2] == [(16, 0), (16, 1)]


def test_online_leaves_out_what_was_overwritten_before_its_turn():
    replay = make({"online": 1.0}, rows=30, added=45)
    assert _heads(replay.sample(4, 10)) == [(15, 0), (15, 1), (25, 0), (25, 1)]


def _heads(sample):
    return list(zip(sample["time"][:, 0].tolist(), sample["env"][:, 0].tolist()))


@pytest.mark.parametrize("batch", [1, 2, 3, 16])
def test_fractions_hold_over_time_and_in_every_batch_as_well_as_they_can(batch):
    fractions = {"uniform": 0.5, "online": 0.3, "recent": 0.2}
    mixture = Mixture(Ring(2, 30, torch.Generator()), Weighting(), fractions)
    given = dict.fromkeys(fractions, 0)
    for number in range(1, 301):
        counts = mixture.counts(batch)
        assert sum(counts.values()) == batch
        for name, part in fractions.items():
            assert counts[name] >= math.floor(part * batch)
            given[name] += counts[name]
            assert abs(given[name] - part * batch * number) < 1.5


def test_a_mixture_takes_windows_from_all_its_parts():
    replay = make({"online": 1.0, "uniform": 1.0, "prioritised": 0.0}, rows=100, added=64)
    assert _heads(replay.sample(4, 8))[:2] == [(0, 0), (0, 1)] and _heads(replay.sample(4, 8))[:2] == [(8, 0), (8, 1)]


@pytest.mark.parametrize(
    ("fractions", "words"),
    [
        ({"unifrom": 1.0}, "did you mean uniform"),
        ({"uniform": -1.0}, "fraction -1"),
        ({"uniform": math.nan}, "fraction nan"),
        ({"uniform": 0.0}, "no replay selector has a part"),
        ({}, "no replay selector has a part"),
        ({"streams": 0.5, "uniform": 0.5}, "cannot be mixed"),
    ],
)
def test_wrong_selectors_are_told(fractions, words):
    with pytest.raises(UserError, match=words):
        selection(fractions, Ring(2, 30, torch.Generator()), Weighting())


@pytest.mark.parametrize("added", [12, 45])
def test_the_newest_windows_end_with_the_newest_row_wherever_the_seam_is(added):
    replay = make({"uniform": 1.0}, added=added)
    sample = replay.sample(2, 7, Newest(replay.ring, Weighting()))
    assert sample["time"].tolist() == [list(range(added - 7, added))] * 2
    assert sample["env"][:, 0].tolist() == [0, 1]


def test_streams_read_on_where_their_last_window_ended():
    replay = make({"streams": 1.0}, rows=1000, added=900)
    first = replay.sample(16, 20)
    assert not first["continues"].any()
    for _ in range(60):
        second = replay.sample(16, 20)
        on = second["continues"]
        end = first["time"][:, -1]
        assert torch.equal(on, end + 20 < 900)
        assert torch.equal(second["time"][on, 0], end[on] + 1) and torch.equal(second["env"][on], first["env"][on])
        assert (second["time"].diff(dim=1) == 1).all()
        first = second
    assert on.any() and not on.all()


def test_streams_overlap_by_the_context():
    replay = make({"streams": 1.0}, rows=1000, added=900, context=1)
    first, second = replay.sample(16, 20), replay.sample(16, 20)
    on = second["continues"]
    assert on.any() and torch.equal(second["time"][on, 0], first["time"][on, -1])


def test_streams_start_anew_where_rows_were_overwritten():
    replay = make({"streams": 1.0}, rows=30, added=30)
    first = replay.sample(64, 5)
    add(replay, 30, 45)
    second = replay.sample(64, 5)
    follows = first["time"][:, -1] + 1
    assert (
        torch.equal(second["continues"], follows >= 15) and second["continues"].any() and not second["continues"].all()
    )
    assert (second["time"] >= 15).all() and (second["time"].diff(dim=1) == 1).all()


def test_streams_start_anew_where_the_batch_has_another_size():
    replay = make({"streams": 1.0}, rows=1000, added=900)
    replay.sample(16, 20)
    assert not replay.sample(8, 20)["continues"].any()
    assert replay.sample(8, 20)["continues"].any()


@pytest.mark.parametrize(
    "selectors", [{"uniform": 1.0}, {"online": 0.3, "recent": 0.3, "prioritised": 0.4}, {"streams": 1.0}], ids=str
)
def test_a_restored_selection_goes_on_exactly(selectors):
    def work(replay, start):
        seen = []
        for t in range(start, start + 40, 2):
            add(replay, t, t + 2)
            sample = replay.sample(5, 6)
            replay.update(sample["index"], {"priority": (sample["time"] % 9).float()})
            seen.append(sample["time"])
        return torch.stack(seen)

    one, other = make(selectors), make(selectors)
    work(one, 45), work(other, 45)
    other.sample(7, 3)
    state = one.state()
    expected = work(one, 85)
    other.restore(state)
    assert torch.equal(work(other, 85), expected)
