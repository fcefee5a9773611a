"""The compiled machine is kept for the next process."""

import subprocess
from pathlib import Path

import pytest

from reverie.nn.native.machine import NoCompiler, machine, place

pytestmark = pytest.mark.usefixtures("c_compiler")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return place()


@pytest.fixture
def compilations(monkeypatch):
    """The commands that were run."""
    commands, run = [], subprocess.run

    def counted(words, **options):
        commands.append(words)
        return run(words, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    return commands


def made() -> object:
    """What a new process gets."""
    return machine.__wrapped__()


def test_it_is_compiled_once(folder, compilations):
    for _ in range(2):
        assert made().epoch
    assert len(compilations) == len(list(folder.iterdir())) == 1


def test_what_is_not_whole_is_compiled_anew(folder, compilations):
    made()
    (kept,) = folder.iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    for _ in range(2):
        assert made().epoch
    assert len(compilations) == 2


def test_another_compiler_makes_another_one(folder, compilations, monkeypatch):
    made()
    monkeypatch.setenv("CC", "cc -DOTHER")
    assert made().epoch and len(compilations) == len(list(folder.iterdir())) == 2
    monkeypatch.setenv("CC", "false")
    with pytest.raises(NoCompiler, match="false failed"):
        made()


@pytest.mark.parametrize("homeless", [False, True])
def test_where_nothing_can_be_kept_it_is_compiled_each_time(tmp_path, compilations, monkeypatch, homeless):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", "" if homeless else str(tmp_path / "file"))
    monkeypatch.setattr(Path, "home", no_home)
    for _ in range(2):
        assert made().epoch
    assert len(compilations) == 2
