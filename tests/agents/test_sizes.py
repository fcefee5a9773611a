"""How large Dreamer is: every published size, layer by layer, without weights in memory."""

import re
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.behavior import Behavior, policy_of
from reverie.agents.dreamer import Dreamer
from reverie.config.dreamers import SIZES
from reverie.config.presets import stacked
from reverie.nn.actions import ActionCode
from reverie.nn.layers import Layers
from reverie.world.model import Window, WorldModel
from reverie.world.rssm import State

IMAGE = spaces.Dict({"image": spaces.Box(0, 255, (64, 64, 3), np.uint8)})
VECTOR = spaces.Dict({"vector": spaces.Box(-1, 1, (24,), np.float32)})
ATARI, CRAFTER, BOX = spaces.Discrete(18), spaces.Discrete(17), spaces.Box(-1, 1, (6,), np.float32)
CPU, META = torch.device("cpu"), torch.device("meta")
PUBLISHED = {
    "1m": (512, 64, 4, 4), "12m": (2048, 256, 16, 16), "25m": (3072, 384, 24, 24), "50m": (4096, 512, 32, 32),
    "100m": (6144, 768, 48, 48), "200m": (8192, 1024, 64, 64), "400m": (12288, 1536, 96, 96),
}  # fmt: skip
"""Deterministic state, width of all layers, classes and channels as the published code has them."""
B, T = 2, 3


def dense(inputs, outputs):
    return inputs * outputs + 2 * outputs  # weights, bias and the norm's scale


def blocks(inputs, outputs):
    return 8 * (inputs // 8) * (outputs // 8) + outputs


def convs(channels):
    return sum(25 * i * o + 2 * o for i, o in pairwise(channels))


def published(size, actions):
    """The weights of all modules of the published code for an image of 64 by 64 by 3."""
    deter, units, classes, depth = PUBLISHED[size]
    stoch, spread = 32 * classes, 4 * 4 * 4 * depth
    feature = deter + stoch
    encoder = convs([3, 2 * depth, 3 * depth, 4 * depth, 4 * depth])
    core = sum(dense(x, units) for x in (deter, stoch, actions))
    core += blocks(deter + 8 * 3 * units, deter) + deter + blocks(deter, 3 * deter)  # each block sees all three inputs
    prior = dense(deter, units) + dense(units, units) + units * stoch + stoch
    posterior = dense(deter + spread, units) + units * stoch + stoch
    decoder = blocks(deter, spread) + dense(stoch, 2 * units) + 2 * units * spread + spread + 4 * depth
    decoder += convs([4 * depth, 4 * depth, 3 * depth, 2 * depth]) + 25 * 2 * depth * 3 + 3
    heads = 2 * dense(feature, units) + units * 255 + 255 + units + 1
    body = dense(feature, units) + 2 * dense(units, units)
    return encoder + core + prior + posterior + decoder + heads + 2 * body + units * (actions + 255) + actions + 255


def built(names, observation=IMAGE, action=ATARI):
    """World model and behaviour whose weights have shapes and nothing else."""
    config = stacked(names)
    world = config.world
    with META:
        model = WorldModel(observation, ActionCode(action).size, world, config.behavior.gamma)
        layers = Layers(world.norm, world.activation, world.init)
        behavior = Behavior(model.features, policy_of(action, config.behavior), config.behavior, layers, world.bins)
    return model, behavior


def trained(*modules):
    return sum(weight.numel() for module in modules for weight in module.parameters() if weight.requires_grad)


@pytest.mark.parametrize("size", SIZES)
def test_a_size_has_the_weights_of_the_published_one(size):
    assert SIZES.keys() == PUBLISHED.keys()
    assert trained(*built(["dreamer_v3", size])) == published(size, actions=18)
    table = (Path(__file__).parents[2] / "docs/dreamer.md").read_text()
    line = re.search(rf"^\| `{size}` \| (\d+) \| ([\d,]+) \| ([\d,]+) \|$", table, re.M)
    bytes_a_step = 64 * 64 * 3 + 2 * PUBLISHED[size][0] + 32 + 15  # image, deter, stoch; action, reward and flags
    assert line and [int(cell.replace(",", "")) for cell in line.groups()] == [
        SIZES[size], published(size, actions=18), bytes_a_step,
    ]  # fmt: skip


def test_the_count_that_the_published_code_tells():
    """It counts in float32, which has no odd numbers of that size."""
    assert trained(*built(["dreamer_v3", "200m"], action=CRAFTER)) == published("200m", actions=17) == 165_965_075
    assert int(np.float32(165_965_075)) == 165_965_072


def test_an_agent_has_the_weights_that_its_parts_have():
    assert trained(Dreamer(IMAGE, ATARI, stacked(["dreamer_v3"]), CPU)) == published("12m", actions=18) == 10_498_772
    small = Dreamer(VECTOR, BOX, stacked(["dreamer_v3", "1m"]), CPU)
    assert trained(small) == trained(*built(["dreamer_v3", "1m"], VECTOR, BOX)) == 640_867


@pytest.mark.parametrize("size", SIZES)
def test_the_losses_of_an_update_reach_all_weights_of_a_size(size, monkeypatch):
    """Shapes fit from the image to the gradient; without weights in memory the largest takes no longer."""
    world, behavior = built(["dreamer_v3", size])
    for part in (world.rssm.latent, behavior.policy):
        draw = part.noise
        monkeypatch.setattr(part, "noise", lambda shape, generator, draw=draw: draw(shape, generator).to(META))
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # which knows no such device
    generator = torch.Generator()
    with META:
        flags = {name: torch.zeros(B, T, dtype=torch.bool) for name in ("is_first", "is_last", "is_terminal")}
        rows = {"image": torch.zeros(B, T, 64, 64, 3, dtype=torch.uint8), "reward": torch.zeros(B, T)} | flags
        start = State(torch.zeros(B, world.config.deter), torch.zeros(B, 32 * world.config.classes))
        state, losses, _ = world.losses(Window(rows, start, torch.zeros(B, T, 18), flags["is_first"]), generator)
        dream, returns = behavior.foreseen(world, state.flat(), flags["is_terminal"].flatten(), generator)
        losses |= behavior.judged(dream, returns)[0]
        sum(loss.mean() for loss in losses.values()).backward()
    assert state.deter.shape == (B, T, PUBLISHED[size][0]) and losses["image"].shape == (B, T)
    for name, weight in [*world.named_parameters(), *behavior.named_parameters()]:
        assert not weight.requires_grad or weight.grad.shape == weight.shape, name
