"""Rows of several environments become whole episodes in a store."""

import numpy as np
import pytest
import torch

from reverie.data.episode_writer import SMALLEST, EpisodeWriter
from reverie.data.episodes import FolderStore


class Memory:
    """A store that keeps what it is given, and can be made to fail."""

    def __init__(self):
        self.episodes, self.failures = [], 0
        self.damaged = []

    def write(self, episode):
        if self.failures:
            self.failures -= 1
            raise OSError("away")
        self.episodes.append({name: value.copy() for name, value in episode.items()})
        return str(len(self.episodes) - 1)

    def names(self):
        return [str(number) for number in range(len(self.episodes))]

    def read(self, name):
        return self.episodes[int(name)]


def stream(rows, lengths, terminal=True):
    """Rows (T, N) of environments whose episodes have these numbers of steps, over and over; `id` tells each apart."""
    columns = {name: np.zeros((rows, len(lengths)), bool) for name in ("is_first", "is_last", "is_terminal")}
    for env, lasting in enumerate(lengths):
        ends = np.cumsum(np.resize(np.array(lasting) + 1, rows)) - 1
        ends = ends[ends < rows]
        columns["is_last"][ends, env] = columns["is_terminal"][ends, env] = True
        columns["is_first"][[0, *(ends[ends + 1 < rows] + 1)], env] = True
    identity = np.arange(rows)[:, None] * 10 + np.arange(len(lengths))
    return columns | {
        "id": identity,
        "image": np.broadcast_to(identity[..., None, None] % 251, (rows, len(lengths), 2, 2)).astype(np.uint8),
        "reward": np.where(columns["is_first"], 0, identity).astype(np.float32),
        "action": identity % 4,
        "logp": -identity.astype(np.float32),
        "value": identity.astype(np.float32),
        "deter": np.zeros((*identity.shape, 3), np.float32),
        "stoch": np.zeros((*identity.shape, 2), np.uint8),
    }


def by_hand(rows, left_out=("deter", "stoch", "value")):
    """The episodes in rows, by the row and the environment of their end."""
    found = []
    for env in range(rows["is_last"].shape[1]):
        start = None
        for t in range(len(rows["is_last"])):
            if rows["is_first"][t, env]:
                start = t
            if rows["is_last"][t, env] and start is not None:
                columns = {name: value[start : t + 1, env] for name, value in rows.items() if name not in left_out}
                found.append((t, env, columns))
                start = None
    return [columns for _, _, columns in sorted(found, key=lambda each: each[:2])]


def check(found, expected):
    assert len(found) == len(expected) > 0
    for left, right in zip(found, expected):
        assert left.keys() == right.keys()
        for name in left:
            assert left[name].dtype == right[name].dtype
            np.testing.assert_array_equal(left[name], right[name])


def part(rows, start, stop):
    return {name: value[start:stop] for name, value in rows.items()}


@pytest.mark.parametrize("chunk", [1, 3, 7, 400])
def test_chunks_of_any_length_give_the_same_episodes(chunk):
    rows = stream(400, [[3, 1, 5], [90], [2], [399]])
    store = Memory()
    writer = EpisodeWriter(store)
    names = [name for start in range(0, 400, chunk) for name in writer.add(part(rows, start, start + chunk))]
    check(store.episodes, by_hand(rows))
    assert names == store.names()
    assert max(len(each["reward"]) for each in store.episodes) == 400 > SMALLEST
    assert {"logp", "action", "image"} <= store.episodes[0].keys()


def test_single_rows_are_taken_too_and_copied():
    rows = stream(30, [[3], [4]])
    store = Memory()
    writer = EpisodeWriter(store, left_out=())
    buffer = {name: value[0].copy() for name, value in rows.items()}
    for t in range(30):
        for name, value in rows.items():
            buffer[name][...] = value[t]
        writer.step(buffer)
    check(store.episodes, by_hand(rows, left_out=()))


def test_tensors_are_taken_and_bits_kept(tmp_path):
    rows = {name: torch.from_numpy(value) for name, value in stream(20, [[4], [6]]).items()}
    rows["deter"] = torch.randn(20, 2, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    store = FolderStore(tmp_path)
    names = EpisodeWriter(store, left_out=("stoch",)).add(rows)
    found = store.read(names[0])
    assert len(names) == 6 and "value" in found and "stoch" not in found
    bits = torch.from_numpy(found["deter"]["bfloat16"].copy()).view(torch.bfloat16)
    assert torch.equal(bits, rows["deter"][:5, 0])


def test_an_episode_that_began_elsewhere_is_passed_over():
    rows = stream(30, [[5], [7]])
    store = Memory()
    EpisodeWriter(store).add(part(rows, 3, 30))
    check(store.episodes, by_hand(part(rows, 3, 30)))
    assert store.episodes[0]["is_first"][0] and len(by_hand(rows)) == len(store.episodes) + 2


@pytest.mark.parametrize("split", [False, True])
def test_an_episode_that_is_broken_off_ends_like_a_timeout(split):
    rows = part(stream(12, [[20]]), 0, 12)
    rows["is_first"][7] = True  # a first row that follows no last one
    store = Memory()
    writer = EpisodeWriter(store)
    for start, stop in ((0, 7), (7, 12)) if split else ((0, 12),):
        writer.add(part(rows, start, stop))
    assert [each["id"].tolist() for each in store.episodes] == [list(range(0, 70, 10))]
    assert store.episodes[0]["is_last"].tolist() == [False] * 6 + [True]
    assert not store.episodes[0]["is_terminal"].any() and not rows["is_last"].any()


def test_a_lone_first_row_is_no_episode():
    rows = stream(6, [[20]])
    rows["is_first"][1] = True
    rows["is_last"][4] = rows["is_first"][5] = rows["is_last"][5] = True
    store = Memory()
    EpisodeWriter(store).add(rows)
    assert [each["id"].tolist() for each in store.episodes] == [[10, 20, 30, 40]]


@pytest.mark.parametrize("tensors", [False, True])
def test_a_restored_writer_goes_on_as_if_never_stopped(tensors, tmp_path):
    rows = stream(200, [[3, 1, 5], [90], [2], [150]])
    rows["deter"] = np.arange(200 * 4 * 3, dtype=np.int16).reshape(200, 4, 3)
    given = {name: torch.from_numpy(value) for name, value in rows.items()}
    given["deter"] = given["deter"].view(torch.bfloat16)
    whole, store = Memory(), Memory()
    EpisodeWriter(whole, left_out=()).add(given)
    writer = EpisodeWriter(store, left_out=())
    writer.add(part(given, 0, 77))
    state = writer.state()
    writer.add(part(given, 77, 100))  # what a run does after its checkpoint changes nothing in it
    del store.episodes[len(by_hand(part(rows, 0, 77))) :]
    if tensors:
        state = through_a_checkpoint(state, tmp_path / "state.pt")
    writer = EpisodeWriter(store, left_out=())
    writer.restore(state)
    writer.add(part(given, 77, 200))
    check(store.episodes, whole.episodes)


def through_a_checkpoint(state, path):
    from reverie.training import checkpoint

    checkpoint.save(path, state)
    return checkpoint.load(path)


def test_what_could_not_be_written_is_written_later():
    rows = stream(12, [[2], [3]])
    store = Memory()
    store.failures = 1
    writer = EpisodeWriter(store)
    with pytest.raises(OSError, match="away"):
        writer.add(part(rows, 0, 11))
    assert store.episodes == []
    again = EpisodeWriter(store)
    again.restore(writer.state())
    assert again.flush() == ["0", "1", "2", "3", "4"] and again.flush() == []
    assert again.add(part(rows, 11, 12)) == ["5", "6"]
    check(store.episodes, by_hand(rows))


def test_rows_of_another_number_of_environments_are_refused():
    writer = EpisodeWriter(Memory())
    writer.add(stream(3, [[5], [5]]))
    with pytest.raises(ValueError, match="rows of 1 environments for a writer of 2"):
        writer.add(stream(3, [[5]]))


def test_what_a_collector_brings_is_kept(tmp_path):
    from reverie.actors import make_agent, make_stream
    from reverie.collect.collector import Collector
    from reverie.config.options import replaced
    from reverie.config.presets import stacked

    device = torch.device("cpu")
    config = replaced(stacked(["dreamer_v3", "debug"]), {"task": "toy_count", "run.threads": 1, "envs.count": 2})
    rows = make_stream(config)
    collector = Collector(rows, make_agent(config, *rows.spaces, device), device)
    store = FolderStore(tmp_path)
    writer = EpisodeWriter(store)
    scores = []
    for _ in range(9):
        chunk = collector.collect(3)
        scores += [each.score for each in chunk.episodes]
        writer.add({name: value[:-1] for name, value in chunk.rows.items()})
    rows.close()
    found = [store.read(name) for name in store.names()]
    assert len(found) == len(scores) == 4 and not {"deter", "stoch"} & found[0].keys()
    assert [each["reward"].sum() for each in found] == scores == [55.0] * 4
    assert all(each["reward"].tolist() == list(range(11)) for each in found)
