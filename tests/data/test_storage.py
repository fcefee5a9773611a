import shutil

import pytest
import torch

from reverie.config.errors import UserError
from reverie.data import storage
from reverie.data.storage import bytes_needed, bytes_per_step, check_fit, free_memory, parsed, plain, suited

CPU = torch.device("cpu")
LAYOUT = {"image": ((64, 64, 3), torch.uint8), "deter": ((512,), torch.bfloat16), "is_first": ((), torch.bool)}


def test_bytes_of_a_step_and_of_a_replay_that_no_ring_divides():
    assert bytes_per_step(LAYOUT) == 64 * 64 * 3 + 2 * 512 + 1
    assert bytes_needed(LAYOUT, 10, envs=4) == 12 * bytes_per_step(LAYOUT)


def test_layouts_survive_files():
    assert parsed(plain(LAYOUT)) == LAYOUT
    with pytest.raises(ValueError, match="no dtype"):
        parsed({"image": [[1], "save"]})


@pytest.mark.parametrize("place", ["ram", "disk"])
def test_a_replay_that_does_not_fit_is_refused_in_one_line_that_says_what_does(place, tmp_path):
    with pytest.raises(UserError) as error:
        check_fit(LAYOUT, 10**12, 8, place, CPU, tmp_path / "not" / "yet")
    message = str(error.value)
    assert "\n" not in message and "13313000.0 GB (13,313 bytes a step)" in message and "--replay.capacity" in message
    fitting = int(message.split("at most ")[1].split(", or")[0].replace(",", ""))
    assert ("--replay.storage disk" in message) == (place == "ram")
    check_fit(LAYOUT, fitting // 2, 8, place, CPU, tmp_path / "not" / "yet")


def test_a_replay_lies_on_the_gpu_where_it_takes_at_most_half_of_what_is_free(monkeypatch):
    cuda = torch.device("cuda")
    assert suited(LAYOUT, 10, 1, CPU) == "ram"
    for free, place in ((200, "gpu"), (199, "ram")):
        monkeypatch.setattr(storage, "free_bytes", lambda *_, free=free: free * bytes_per_step(LAYOUT))
        assert suited(LAYOUT, 100, 1, cuda) == place


def test_files_a_replay_already_has_count_as_free(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)  # of the real disk others write to, too
    (tmp_path / "image.bin").write_bytes(bytes(1 << 20))
    (tmp_path / "notes.txt").write_bytes(bytes(1 << 20))
    assert 1 << 19 < storage.free_bytes("disk", CPU, tmp_path) - usage.free < 3 << 19


def test_files_that_are_mapped_but_not_written_count_as_what_they_take(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with open(tmp_path / "image.bin", "wb") as file:
        file.truncate(1 << 30)
    assert storage.free_bytes("disk", CPU, tmp_path) - usage.free < 1 << 20


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path):
    write(tmp_path / "proc/meminfo", "MemTotal:       2000 kB\nMemAvailable:   1000 kB\n")
    return tmp_path


def test_free_memory_is_what_the_system_has(machine):
    assert free_memory(machine) == 1000 * 1024
    write(machine / "proc/self/cgroup", "0::/user\n")
    write(machine / "sys/fs/cgroup/user/memory.max", "max\n")
    write(machine / "sys/fs/cgroup/user/memory.current", "5\n")
    assert free_memory(machine) == 1000 * 1024


def test_free_memory_is_less_inside_a_control_group(machine):
    write(machine / "proc/self/cgroup", "0::/outer/inner\n")
    write(machine / "sys/fs/cgroup/outer/inner/memory.max", "max\n")
    write(machine / "sys/fs/cgroup/outer/inner/memory.current", "10\n")
    write(machine / "sys/fs/cgroup/outer/memory.max", "5000\n")
    write(machine / "sys/fs/cgroup/outer/memory.current", "1000\n")
    write(machine / "sys/fs/cgroup/outer/memory.stat", "anon 600\ninactive_file 300\n")
    assert free_memory(machine) == 4300


def test_free_memory_is_less_inside_a_group_of_the_first_version(machine):
    write(machine / "proc/self/cgroup", "3:cpu,cpuacct:/a\n2:memory:/a\n")
    write(machine / "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n")
    write(machine / "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "96\n")
    assert free_memory(machine) == 4000


@pytest.mark.parametrize("place", ["pinned", "gpu"])
def test_memory_of_a_gpu_needs_one(place):
    with pytest.raises(UserError, match=f"--replay.storage {place} needs a CUDA device: use ram or disk"):
        storage.place_of(place, CPU)
