"""Torch in bfloat16 on processors that say they have tiles."""

import os
import subprocess
import sys

import pytest

from reverie.nn import tiles

TILES = 1 << 24
WHOLE = {
    (0, 0): (0x20, 0, 0, 0),
    (0x7, 0): (1, 0, 0, TILES),
    (0x1D, 0): (1, 0, 0, 0),
    (0x1D, 1): (0x4002000, 0x80040, 16, 0),  # 8 names of 64 bytes a row, 16 rows
}


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({}, False),
        ({(0x7, 0): (1, 0, 0, ~TILES & 0xFFFFFFFF)}, False),
        ({(0, 0): (0x1, 0, 0, 0)}, False),
        ({(0, 0): (0x16, 0, 0, 0)}, True),
        ({(0x1D, 0): (0, 0, 0, 0), (0x1D, 1): (0, 0, 0, 0)}, True),
        ({(0x1D, 1): (0, 0, 0, 0)}, True),
        ({(0x1D, 1): (0x4002000, 0x40, 16, 0)}, True),
        ({(0x1D, 1): (0x4002000, 0x80040, 0, 0)}, True),
    ],
    ids=["whole", "none", "old", "no leaf", "nothing", "no palette", "no names", "no rows"],
)
def test_tiles_are_hollow_where_nothing_describes_them(differs, expected):
    told = WHOLE | differs
    assert tiles.hollow(lambda leaf, subleaf: told[leaf, subleaf]) is expected


def in_a_program(code: str, **settings: str) -> str:
    """What a program prints that finds these settings."""
    settings = {name: value for name, value in os.environ.items() if name != tiles.LIMIT} | settings
    return subprocess.run([sys.executable, "-c", code], env=settings, check=True, capture_output=True, text=True).stdout


def test_torch_multiplies_in_bfloat16_on_this_machine():
    code = "import reverie.nn, torch; x = torch.ones(16, 512).bfloat16(); print((x @ x.T)[0, 0].item())"
    assert in_a_program(code) == "512.0\n"


def test_what_the_user_set_stays():
    code = f"import reverie.nn, os; print(os.environ['{tiles.LIMIT}'])"
    assert in_a_program(code, **{tiles.LIMIT: "AVX2"}) == "AVX2\n"


@pytest.fixture
def processor(monkeypatch):
    """A function that puts another processor in the place of this one, with nothing set by the user."""
    monkeypatch.setenv(tiles.LIMIT, "")
    monkeypatch.delenv(tiles.LIMIT)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return lambda found: monkeypatch.setattr(tiles, "_processor", found)


def test_torch_keeps_whole_tiles(processor):
    processor(lambda: lambda leaf, subleaf: WHOLE[leaf, subleaf])
    tiles.spare_hollow_tiles()
    assert tiles.LIMIT not in os.environ


def test_nothing_is_set_where_no_code_may_run(processor):
    def refused() -> tiles.Ask:
        raise PermissionError

    processor(refused)
    tiles.spare_hollow_tiles()
    assert tiles.LIMIT not in os.environ


def test_torch_goes_without_hollow_tiles(processor):
    processor(lambda: lambda leaf, subleaf: (WHOLE | {(0x1D, 0): (0, 0, 0, 0)})[leaf, subleaf])
    tiles.spare_hollow_tiles()
    assert os.environ[tiles.LIMIT] == tiles.WITHOUT_TILES
