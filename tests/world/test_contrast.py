"""Learning without a decoder: values on small matrices."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.config.dreamer import WorldConfig
from reverie.world.contrast import contrast, redundancy, standardized
from reverie.world.model import Window, WorldModel
from reverie.world.rssm import State

CONFIG = WorldConfig(deter=8, hidden=6, groups=2, classes=3, blocks=2, units=7, layers=1, bins=15)


def test_columns_get_mean_zero_and_deviation_one():
    x = torch.tensor([[[1.0, 5.0], [3.0, 5.0]]])
    out = standardized(x)
    root = math.sqrt(1 + 1e-5)
    torch.testing.assert_close(out, torch.tensor([[-1 / root, 0.0], [1 / root, 0.0]]))


def test_redundancy_of_small_matrices():
    left = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    assert redundancy(left, left, 0.5).item() == 0  # uncorrelated columns that agree
    right = left[:, [0, 0]]  # correlations 1 1, 0 0
    assert redundancy(left, right, 0.5).item() == pytest.approx(0 + 1 + 0.5 * 1)
    assert redundancy(left, -left, 0.5).item() == pytest.approx(4 + 4)


def test_contrast_is_the_chance_of_the_own_key():
    query, key = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [3.0, 1.0]])
    found = contrast(query, key).tolist()
    scores = np.array([[2.0, 6.0], [0.0, 2.0]]) / math.sqrt(2)
    expected = [-math.log(math.exp(scores[i, i]) / np.exp(scores[i]).sum()) for i in range(2)]
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["barlow", "infonce"])
def test_features_and_encoder_learn_from_it(kind):
    torch.manual_seed(0)
    space = spaces.Dict({"vector": spaces.Box(-1, 1, (3,), np.float32)})
    world = WorldModel(space, 2, replace(CONFIG, representation=kind, recon_scale=3.0), 0.9)
    assert world.decoder is None
    rows = {key: torch.zeros(2, 4, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    rows |= {"vector": torch.randn(2, 4, 3), "reward": torch.zeros(2, 4)}
    window = Window(rows, State(torch.zeros(2, 8), torch.zeros(2, 6)), torch.zeros(2, 4, 2), rows["is_first"])
    state, losses, _ = world.losses(window, torch.Generator().manual_seed(0))
    assert losses[kind].shape == (2, 4) and "vector" not in losses
    embed = world.encoder(rows)
    if kind == "barlow":
        value = redundancy(standardized(world.contrast.project(state.feature)), standardized(embed), 5e-4)
        torch.testing.assert_close(losses[kind], (3 * value).expand(2, 4))
    else:
        query, key = world.contrast.query(state.feature).flatten(0, 1), world.contrast.key(embed).flatten(0, 1)
        torch.testing.assert_close(losses[kind], 3 * contrast(query, key).reshape(2, 4))
    losses[kind].mean().backward()
    for module in (world.encoder, world.rssm.posterior_out, world.contrast):
        assert all(parameter.grad.abs().sum() > 0 for parameter in module.parameters())
