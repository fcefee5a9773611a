"""Where the kernels are used, and what happens where they are not."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from emulation.windows import CONFIGS, goals_of, rssm_of, window_of
from reverie.world.kernel.persistent import PersistentScan
from reverie.world.kernel.program import SOURCE
from reverie.world.kernel.shape import unfit
from reverie.world.scan import Scan

ROOT = Path(__file__).parents[3]
SMALL = CONFIGS["1m"]
UNFIT = {
    "25m": (CONFIGS["25m"], 16, True, "it is made for the widths of 12m and 1m"),
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


@pytest.mark.parametrize("size", ["1m", "12m"])
def test_sizes_that_fit(size):
    assert unfit(rssm_of(CONFIGS[size]), 16, half=True) == ""


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
