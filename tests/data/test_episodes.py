"""Whole episodes in files: their form, what is damaged, and many processes at once."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from reverie.config.errors import UserError
from reverie.data import storage
from reverie.data.episode_file import BITS, Title, Titles, note
from reverie.data.episodes import FolderStore

WRITER = """
import itertools, os, sys
import numpy as np
import reverie.data.episode_reader
import reverie.data.episode_writer
from reverie.data.episodes import FolderStore

assert "torch" not in sys.modules  # generators may do without
store = FolderStore(sys.argv[1], keep=int(sys.argv[2]))
for number in itertools.count():
    if number >= int(sys.argv[3]) and os.path.exists(sys.argv[4]):
        break
    flags = np.zeros(101, bool)
    first, last = flags.copy(), flags.copy()
    first[0] = last[-1] = True
    image = np.full((101, 40, 40, 3), number % 251, np.uint8)
    reward = np.full(101, number, np.float32)
    columns = {"image": image, "reward": reward, "is_first": first, "is_last": last, "is_terminal": flags}
    print(store.write(columns | {"action": np.arange(101)}), flush=True)
"""


def episode(steps, value=0.0, **more):
    rows = np.arange(steps + 1)
    return {
        "vector": np.stack([rows, rows * 10 + value], 1).astype(np.float32),
        "reward": np.where(rows == 0, 0, value).astype(np.float32),
        "is_first": rows == 0,
        "is_last": rows == steps,
        "is_terminal": rows == steps,
        "action": rows % 3,
        "logp": -rows.astype(np.float32),
        **more,
    }


def equal(left, right):
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and np.array_equal(left[name], right[name]) for name in left
    )


def writing(folder, keep=0, count=0, end=""):
    """A process that writes so many episodes, and goes on until there is a file that ends it, or for ever."""
    words = [sys.executable, "-c", WRITER, str(folder), str(keep), str(count), str(end)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("compress", [False, True])
def test_an_episode_comes_back_as_it_was(compress, tmp_path):
    bits = np.arange(12, dtype=np.int16).reshape(4, 3).view(note("bfloat16"))
    written = episode(3, 2.5, file=np.ones(4, np.int8), **{"camera/left": np.zeros((4, 6, 6, 3), np.uint8)}, deter=bits)
    store = FolderStore(tmp_path / "new" / "folder", compress=compress)
    name = store.write(written)
    assert store.names() == [name] and equal(FolderStore(store.folder).read(name), written)
    assert [each.name for each in store.folder.iterdir()] == [name] and store.damaged == []


def test_a_file_is_plain_npz(tmp_path):
    store = FolderStore(tmp_path)
    bits = np.array([[1], [-2]], np.int16)
    path = tmp_path / store.write(episode(1, deter=bits.view(note("bfloat16"))))
    with np.load(path, allow_pickle=False) as file:
        assert {"vector", "reward", "action", "deter"} <= set(file.files)
        assert np.array_equal(file["vector"], episode(1)["vector"])
        assert np.array_equal(file["deter"]["bfloat16"], bits)


def test_a_file_of_np_savez_with_a_right_name_is_an_episode(tmp_path):
    title = Titles()(episode(4, 1.0))
    np.savez_compressed(tmp_path / str(title), **episode(4, 1.0))
    assert equal(FolderStore(tmp_path).read(str(title)), episode(4, 1.0))


def test_every_dtype_that_numpy_lacks_has_bits():
    assert {
        str(key).removeprefix("torch."): str(value).removeprefix("torch.") for key, value in storage.FOREIGN.items()
    } == {word: str(dtype) for word, dtype in BITS.items()}


def test_names_tell_steps_and_return_and_sort_by_time(tmp_path):
    stores = [FolderStore(tmp_path), FolderStore(tmp_path)]
    values = [3.0, -1.5, 1e12, 0.1, float("nan"), float("-inf")]
    names = [stores[index % 2].write(episode(2, value)) for index, value in enumerate(values)]
    assert stores[0].names() == sorted(names) == names
    titles = [Title.parse(name) for name in names]
    assert [title.steps for title in titles] == [2] * 6 and len({title.unique for title in titles}) == 6
    np.testing.assert_allclose([title.score for title in titles], [6.0, -3.0, 2e12, 0.2, np.nan, -np.inf], rtol=1e-6)
    assert [str(title) for title in titles] == names and not any("+" in name for name in names)
    assert all(0 <= title.age < 60 for title in titles)


def test_names_keep_their_order_when_the_clock_is_put_back():
    titles = Titles()
    titles.latest = titles.latest.replace(year=2100)
    times = [titles(episode(1)).time for _ in range(5)]
    assert times == sorted(set(times)) and times[0].startswith("2100")


def without(rows, name):
    return {key: value for key, value in rows.items() if key != name}


BROKEN = {
    "no reward": without(episode(3), "reward"),
    "no action": without(episode(3), "action"),
    "two lengths": episode(3, logp=np.zeros(3, np.float32)),
    "a number": episode(3, logp=np.float32(1)),
    "words": episode(3, word=np.array(["a"] * 4)),
    "other bytes": episode(3, logp=np.zeros(4, ">f4")),
    "numbers for flags": episode(3, is_last=np.array([0, 0, 0, 1])),
    "no end": episode(3, is_last=np.zeros(4, bool)),
    "two ends": episode(3, is_last=np.array([False, True, False, True])),
    "no start": episode(3, is_first=np.zeros(4, bool)),
    "no step": episode(0),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_whole_episode_is_neither_written_nor_read(kind, tmp_path):
    store = FolderStore(tmp_path)
    rows = {name: np.asarray(value) for name, value in BROKEN[kind].items()}
    with pytest.raises(ValueError, match="no whole episode"):
        store.write(rows)
    assert not list(tmp_path.iterdir())
    name = f"20260101T000000000000_0123456789ab_{'0' if kind == 'no step' else '3'}_0.npz"
    np.savez(tmp_path / name, **rows)
    assert store.read(name) is None and store.damaged == [name]


def hurt(path, how):
    data = bytearray(path.read_bytes())
    if how == "empty":
        data = bytearray()
    elif how == "cut":
        data = data[: len(data) // 2]
    elif how == "cut a little":
        data = data[:-10]
    elif how == "flipped":
        data[len(data) // 3] ^= 1
    elif how == "text":
        data = bytearray(b"PK this is no archive")
    elif how == "pickle":
        data = bytearray(pickle.dumps({"reward": [1.0]}))
    path.write_bytes(bytes(data))
    if how == "objects":
        np.savez(path, **episode(3, thing=np.array([{}, [], None, 1], object)))
    elif how == "single array":
        with open(path, "wb") as file:
            np.save(file, np.zeros(4))
    elif how == "other member":
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("run.py", "print(1)")
    elif how == "other length":
        np.savez(path, **episode(7))


HURTS = ["empty", "cut", "cut a little", "flipped", "text", "pickle", "objects", "single array", "other member",
         "other length"]  # fmt: skip


@pytest.mark.parametrize("how", HURTS)
def test_a_damaged_file_is_skipped_counted_and_named_once(how, tmp_path, caplog):
    store = FolderStore(tmp_path)
    names = [store.write(episode(3, value)) for value in (1.0, 2.0, 3.0)]
    hurt(tmp_path / names[1], how)
    with caplog.at_level(logging.WARNING, logger="reverie"):
        found = [store.read(name) for name in names]
        store.read(names[1])
    assert equal(found[0], episode(3, 1.0)) and found[1] is None and equal(found[2], episode(3, 3.0))
    assert store.damaged == [names[1]] and store.names() == [names[0], names[2]]
    assert len(caplog.messages) == 1 and names[1] in caplog.text and "(1 skipped" in caplog.text


def test_foreign_files_are_named_and_hidden_ones_left_alone(tmp_path, caplog):
    store = FolderStore(tmp_path)
    name = store.write(episode(3))
    strangers = [
        "notes.txt",
        "20260101T000000000000_0123456789ab_3_much.npz",
        "20261301T000000000000_0123456789ab_3_1.npz",
    ]
    for stranger in (*strangers, ".hidden", f".{name}.partial"):
        (tmp_path / stranger).write_text("?")
    with caplog.at_level(logging.WARNING, logger="reverie"):
        assert store.names() == store.names() == [name]
    assert sorted(store.damaged) == sorted(strangers) and len(caplog.messages) == 3
    assert store.read("notes.txt") is None


def test_what_is_not_there_is_no_damage(tmp_path):
    store = FolderStore(tmp_path / "none")
    assert store.names() == []
    assert store.read("20260101T000000000000_0123456789ab_3_1.npz") is None and store.damaged == []


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write an episode into .*file") as error:
        FolderStore(tmp_path / "file" / "folder").write(episode(3))
    assert "\n" not in str(error.value)


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    store = FolderStore(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left"):
        store.write(episode(3))
    assert not list(tmp_path.iterdir())


def test_what_dead_writers_left_is_removed_later(tmp_path):
    old, new = tmp_path / ".old.npz.partial", tmp_path / ".new.npz.partial"
    for path in (old, new):
        path.write_text("")
    os.utime(old, (0, 0))
    FolderStore(tmp_path).write(episode(3))
    assert not old.exists() and new.exists()


def test_the_newest_steps_are_kept(tmp_path):
    store = FolderStore(tmp_path, keep=10)
    names = [store.write(episode(steps)) for steps in (4, 4, 3, 5, 2)]
    assert store.names() == names[2:]
    names.append(store.write(episode(30)))
    assert store.names() == names[-1:]
    reader = FolderStore(tmp_path)
    store.write(episode(30))
    assert reader.read(names[-1]) is None and reader.damaged == []


def test_a_killed_writer_leaves_whole_files_and_all_that_it_told_of(tmp_path):
    told = []
    for lines in (1, 7, 20):
        process = writing(tmp_path)
        told += [process.stdout.readline().strip() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        told += [line.strip() for line in process.stdout if line.endswith(".npz\n")]
        process.wait()
        process.stdout.close()
    store = FolderStore(tmp_path)
    names = store.names()
    assert set(told) <= set(names) and len(names) <= len(told) + 3
    for name in names:
        found = store.read(name)
        assert (found["image"] == found["reward"][0] % 251).all()
    assert store.damaged == []


def test_many_write_and_read_at_once(tmp_path):
    folder, enough = tmp_path / "episodes", tmp_path / "enough"
    processes = [writing(folder, keep=600, count=40, end=enough) for _ in range(2)]
    store, seen = FolderStore(folder), set()
    while any(process.poll() is None for process in processes):
        for name in store.names():
            found = store.read(name)
            assert found is None or (found["image"] == found["reward"][0] % 251).all()
            seen.add(name)
        if len(seen) > 6:  # more than there are at a time
            enough.touch()
    told = [line.strip() for process in processes for line in process.stdout]
    for process in processes:
        assert process.wait() == 0
        process.stdout.close()
    assert len(set(told)) == len(told) >= 80 and seen <= set(told) and len(seen) > 6
    assert store.damaged == [] and sum(Title.parse(name).steps for name in store.names()) == 600
    assert [name for name in os.listdir(folder) if name.startswith(".")] == []
