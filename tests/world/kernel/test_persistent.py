"""Where the kernels are used, and what happens where they are not."""

import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from emulation.windows import CONFIGS, goals_of, rssm_of, window_of
from reverie.world.kernel import program
from reverie.world.kernel.persistent import PersistentScan
from reverie.world.kernel.program import SOURCE, Program
from reverie.world.kernel.shape import ROOM, SIZES, Shape, shape_of, unfit
from reverie.world.scan import Scan

ROOT = Path(__file__).parents[3]
SMALL = CONFIGS["1m"]
UNFIT = {
    "widths": (CONFIGS["odd"], 16, True, "it is made for the widths of 1m, 12m, 25m, 50m, 100m and 200m"),
    "batch": (SMALL, 8, True, "it is made for 16 windows in each process, not 8"),
    "precision": (SMALL, 16, False, "bfloat16"),
    "unimix": (replace(SMALL, unimix=0.0), 16, True, "--world.unimix"),
    "cell": (replace(SMALL, cell="norm"), 16, True, "block cell"),
    "latent": (replace(SMALL, latent="gaussian"), 16, True, "categorical"),
    "start": (replace(SMALL, initial="learned"), 16, True, "initial state of zeros"),
    "posterior": (replace(SMALL, posterior_layers=2), 16, True, "one posterior layer"),
    "norm": (replace(SMALL, norm="layer"), 16, True, "RMS norms"),
    "activation": (replace(SMALL, activation="elu"), 16, True, "SiLU"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_reasons_why_the_kernels_do_not_fit(case):
    config, batch, half, reason = UNFIT[case]
    assert reason in unfit(rssm_of(config), batch, half)


@pytest.mark.parametrize("size", ["1m", "12m", "25m", "50m"])
def test_sizes_that_fit(size):
    rssm = rssm_of(CONFIGS[size])
    assert unfit(rssm, 16, half=True) == ""
    assert shape_of(rssm).streamed == (size in ("25m", "50m"))


@pytest.mark.parametrize(("widths", "size"), SIZES.items())
def test_sizes_have_the_widths_of_presets_and_find_room(widths, size):
    config = CONFIGS[size]
    assert widths == (config.deter, config.hidden, config.blocks, config.groups, config.classes)
    shape = Shape(*widths, config.unimix, 48 if size == "25m" else max(16, config.deter // 128))
    assert shape.ctas <= 132  # multiprocessors of an H200: all thread blocks must be there at once
    assert max(shape.shared.values()) <= ROOM == 232_448
    assert not shape.streamed or min(shape.slots.values()) >= 4


def test_a_gpu_with_too_little_shared_memory_is_refused(monkeypatch):
    """An RTX 4090 has 99 KiB for a thread block."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(program, "kept", lambda source, options: b"")
    monkeypatch.setattr(program, "Module", lambda code: SimpleNamespace(room=lambda: 99 * 1024))
    shape = Shape(4096, 512, 8, 32, 32, 0.01, 32)
    with pytest.raises(RuntimeError, match=f"{shape.shared['forward']} bytes of shared memory .* the GPU has 101376"):
        Program(shape, torch.device("cpu"))


@pytest.mark.parametrize(("batch", "half"), [(5, True), (16, False)])
def test_other_windows_are_scanned_step_by_step(batch, half):
    rssm = rssm_of(SMALL)
    window, goals = window_of(rssm, 2, batch), goals_of(rssm, 2, batch)
    window = window.halved() if half else window
    results = []
    for scan in (Scan(rssm), PersistentScan(rssm, program=None)):  # a program that is asked would fail
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            state, params = scan(*window)
        loss = sum((x.transpose(0, 1) * goal).sum() for x, goal in zip((*state, params), goals))
        results.append([state.deter, *torch.autograd.grad(loss, [rssm.cell.mix.weight, rssm.posterior_out.bias])])
    for expected, found in zip(*results):
        assert torch.equal(expected, found)


def test_the_kernels_are_part_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["reverie"]
    package = SOURCE.parents[2]
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    assert packed >= {path for path in SOURCE.parent.iterdir() if path.suffix in (".cu", ".cuh")} > {SOURCE}
