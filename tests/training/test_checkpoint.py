"""Checkpoints: whole or not at all, and never code."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from reverie.config.errors import UserError
from reverie.training import checkpoint


def test_what_is_saved_comes_back(tmp_path):
    state = {"a": torch.arange(3), "b": {"c": np.ones(2), "d": [1, 2.5, "x", None]}, "e": np.float64(2.0)}
    checkpoint.save(tmp_path / "new" / "latest.pt", state)
    got = checkpoint.load(tmp_path / "new" / "latest.pt")
    assert torch.equal(got["a"], state["a"])
    assert torch.equal(got["b"]["c"], torch.ones(2, dtype=torch.float64))
    assert got["b"]["d"] == [1, 2.5, "x", None]
    assert got["e"] == 2.0


@pytest.mark.parametrize("keep", [0, 10, 200, -10])
def test_a_truncated_file_is_told_in_one_line(tmp_path, keep):
    path = tmp_path / "latest.pt"
    checkpoint.save(path, {"a": torch.zeros(100)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match="damaged") as caught:
        checkpoint.load(path)
    assert "\n" not in str(caught.value)


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("/tmp/reverie-was-here",))


def test_code_in_a_file_is_not_run(tmp_path):
    torch.save({"format": 1, "agent": Evil()}, tmp_path / "one.pt")
    (tmp_path / "two.pt").write_bytes(pickle.dumps(Evil()))
    for name in ("one.pt", "two.pt"):
        with pytest.raises(UserError):
            checkpoint.load(tmp_path / name)
    assert not os.path.exists("/tmp/reverie-was-here")


def test_a_foreign_checkpoint_is_refused(tmp_path):
    torch.save({"model": torch.zeros(1)}, tmp_path / "x.pt")
    with pytest.raises(UserError, match="no checkpoint of this version"):
        checkpoint.load(tmp_path / "x.pt")


def test_a_missing_one_names_those_that_are_there(tmp_path):
    checkpoint.save(tmp_path / "checkpoints" / "latest.pt", {})
    assert checkpoint.find(tmp_path, "best").name == "latest.pt"
    with pytest.raises(UserError, match=r"there is latest\.pt"):
        checkpoint.load(checkpoint.find(tmp_path, "other.pt"))


CUT = """
import resource, sys
from pathlib import Path
import torch
from reverie.training import checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
checkpoint.save(Path(sys.argv[1]), {"a": torch.zeros(1_000_000)})
"""


def test_a_disk_that_fills_up_meanwhile_is_told_in_the_systems_words(tmp_path):
    done = subprocess.run([sys.executable, "-c", CUT, str(tmp_path / "latest.pt")], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("latest.pt: File too large: make room, then --resume")
    assert not list(tmp_path.iterdir())


def test_a_damaged_one_names_the_others_that_can_be_read(tmp_path):
    checkpoint.save(tmp_path / "best.pt", {})
    for name in ("latest.pt", "other.pt"):
        (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"latest\.pt is damaged .* another one \(there is best\.pt\)$"):
        checkpoint.load(tmp_path / "latest.pt")


def test_a_full_disk_keeps_the_old_file(tmp_path):
    path = tmp_path / "latest.pt"
    checkpoint.save(path, {"a": 1})
    path.with_name(f".{path.name}.partial").symlink_to("/dev/full")
    with pytest.raises(UserError, match="No space left on device"):
        checkpoint.save(path, {"a": torch.zeros(100_000)})
    assert checkpoint.load(path)["a"] == 1
    assert not path.with_name(f".{path.name}.partial").is_symlink()
