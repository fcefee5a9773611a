"""A learner's view of a store: what is new in it."""

import numpy as np
import pytest

from reverie.data.episode_reader import EpisodeReader
from reverie.data.episodes import FolderStore


def episode(steps, value=0.0):
    rows = np.arange(steps + 1)
    return {
        "reward": np.full(steps + 1, value, np.float32),
        "is_first": rows == 0,
        "is_last": rows == steps,
        "is_terminal": rows == steps,
        "action": rows,
    }


def values(episodes):
    return [int(each["reward"][0]) for each in episodes.values()]


@pytest.fixture
def store(tmp_path):
    """A store with episodes 0 to 4, of ten steps each."""
    found = FolderStore(tmp_path)
    for value in range(5):
        found.write(episode(10, value))
    return found


def test_every_episode_comes_once_and_in_order(store):
    reader = EpisodeReader(store)
    found = reader.poll()
    assert values(found) == [0, 1, 2, 3, 4] and list(found) == store.names()
    assert reader.poll() == {}
    store.write(episode(3, 5))
    assert values(reader.poll()) == [5]


def test_a_limit_gives_all_in_portions(store):
    reader = EpisodeReader(store, limit=11)
    assert [values(reader.poll()) for _ in range(4)] == [[0, 1], [2, 3], [4], []]


def test_newest_passes_over_what_newer_ones_have_overtaken(store):
    reader = EpisodeReader(store, order="newest", limit=20)
    assert values(reader.poll()) == [3, 4]
    assert reader.poll() == {}
    for value in range(5, 9):
        store.write(episode(10, value))
    assert values(reader.poll()) == [7, 8]
    store.write(episode(10, 9))
    assert values(reader.poll()) == [9] and reader.poll() == {}
    with pytest.raises(ValueError, match="limit"):
        EpisodeReader(store, order="newest")


def test_damaged_and_removed_ones_are_left_out(store):
    names = store.names()
    (store.folder / names[1]).write_bytes(b"")
    reader = EpisodeReader(store)
    assert values(reader.poll()) == [0, 2, 3, 4] and store.damaged == [names[1]]
    (store.folder / names[2]).unlink()
    assert reader.poll() == {} and reader.done == {names[0], *names[3:]}


def test_one_that_arrives_late_is_not_missed(store):
    names = store.names()
    away = store.folder / ".away"
    (store.folder / names[1]).rename(away)
    reader = EpisodeReader(store)
    assert values(reader.poll()) == [0, 2, 3, 4]
    away.rename(store.folder / names[1])
    assert values(reader.poll()) == [1]


def test_a_restored_reader_goes_on(store):
    reader = EpisodeReader(store, limit=20)
    reader.poll()
    again = EpisodeReader(store, limit=20)
    again.restore(reader.state())
    assert values(again.poll()) == values(reader.poll()) == [2, 3]
