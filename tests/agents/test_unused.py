"""Options that are said to do nothing do nothing: whatever they are, an agent learns the same."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.dreamer import Dreamer
from reverie.agents.latent_ppo import DreamPPO
from reverie.config.options import replaced
from reverie.config.owners import idle
from reverie.config.presets import stacked
from reverie.config.uses import USES
from reverie.tools.bench_rows import Fiction

OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
ACTION = spaces.Box(-1, 1, (2,), np.float32)
B, T = 2, 5
SMALL = {"replay.prefill": 0, "replay.batch": B, "replay.length": T, "run.fast": "off", "optim.model.warmup": 0}
BARLOW = {"world.representation": "barlow"}
CASES = [
    ("dreamer_v1", {}, {"world.classes": 7}),
    ("dreamer_v1", {}, {"world.unimix": 0.5}),
    ("dreamer_v3", {}, {"world.std": "sigmoid"}),
    ("dreamer_v3", {}, {"world.min_std": 0.7}),
    ("dreamer_v3", {}, {"world.gate_bias": True}),
    ("dreamer_v2", {}, {"world.blocks": 4}),
    ("cartpole", BARLOW, {"world.blocks": 4}),
    ("dreamer_v3", BARLOW, {"world.decoder_keys": "nothing"}),
    ("dreamer_v3", {"world.cont_head": False}, {"world.cont_layers": 3}),
    ("dreamer_v3", {"world.cont_head": False}, {"world.cont_discounted": False}),
    ("dreamer_v3", {"world.cont_head": False}, {"world.cont_scale": 9.0}),
    ("dreamer_v2", {}, {"world.bins": 15}),
    ("dreamer_v2", {}, {"world.free_mean": False}),
    ("dreamer_v3", {"world.representation": "infonce"}, {"world.barlow_offdiagonal": 0.5}),
    ("dreamer_v3", {}, {"world.overshoot_scale": 9.0}),
    ("dreamer_v1", {}, {"behavior.max_std": 0.5}),
    ("dreamer_v3", {}, {"behavior.init_std": 0.5}),
    ("dreamer_v3", {}, {"behavior.mix": 0.9}),
    ("dreamer_v3", {}, {"behavior.dynamics_baseline": True}),
    ("dreamer_v2", {}, {"behavior.mix_end": 0.9}),
    ("dreamer_v1", {}, {"behavior.regularizer": "divergence"}),
    ("dreamer_v1", {"behavior.slow": "copy"}, {"behavior.slow": "average"}),
    ("dreamer_v2", {"behavior.slow_target": False}, {"behavior.slow_every": 1}),
    ("dreamer_v3", {"behavior.slow_scale": 0.0}, {"behavior.slow_rate": 1.0}),
    ("dreamer_v1", {}, {"behavior.slow_target": True}),
    ("dreamer_v1", {}, {"behavior.slow_scale": 1.0}),
    ("dreamer_v3", {}, {"behavior.slow_every": 1}),
    ("dreamer_v2", {}, {"behavior.slow_rate": 1.0}),
    ("dreamer_v2", {}, {"behavior.return_low": 40.0}),
    ("dreamer_v2", {}, {"behavior.return_high": 60.0}),
    ("dreamer_v2", {}, {"behavior.return_rate": 1.0}),
]
BY_PPO = [
    {"behavior.regularizer": "divergence"}, {"behavior.arrival": True}, {"behavior.train_start": False},
    {"behavior.true_start": True}, {"behavior.return_norm": False}, {"behavior.slow_scale": 9.0},
    {"behavior.entropy": 1.0}, {"behavior.replay_scale": 1.0}, {"optim.joint": False},
]  # fmt: skip


def learned(kind, config):
    """Weights and metrics after two updates in the middle of a run; those of a slow critic that nobody asks aside."""
    torch.manual_seed(0)
    agent = kind(OBSERVATION, ACTION, config, torch.device("cpu"))
    fiction = Fiction(agent, OBSERVATION, ACTION, B, torch.device("cpu"))
    length = T + int(agent.replay.start == "stored")
    torch.manual_seed(1)
    rows = {key: value.transpose(0, 1).contiguous() for key, value in fiction.rows(length).items()}
    agent.generator.manual_seed(0)
    agent.schedule(0.5)
    for _ in range(2):
        found = agent.learn_replay(rows)
    weights = {name: value for name, value in agent.state_dict().items() if not name.startswith("behavior.slow.")}
    return weights | found.metrics | found.writeback


def assert_same(kind, config, change):
    (name,) = change
    assert idle(name, config) and idle(name, replaced(config, change))
    expected, found = learned(kind, config), learned(kind, replaced(config, change))
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-6, msg=key)


@pytest.mark.parametrize(("preset", "options", "change"), CASES)
def test_it_learns_the_same(preset, options, change):
    assert_same(Dreamer, replaced(stacked([preset, "debug"]), SMALL | options), change)


@pytest.mark.parametrize("change", BY_PPO)
def test_clipped_updates_on_dreams_learn_the_same(change):
    policy = {"agent.policy": "imagined_ppo", "ppo.minibatch": 16}
    assert_same(DreamPPO, replaced(stacked(["dreamer_v3", "debug"]), SMALL | policy), change)


def test_it_does_not_where_an_option_is_used():
    config = replaced(stacked(["dreamer_v3", "debug"]), SMALL)
    one, two = learned(Dreamer, config), learned(Dreamer, replaced(config, {"world.unimix": 0.5}))
    assert one.keys() == two.keys() and not torch.allclose(one["world/kl"], two["world/kl"], rtol=1e-3)


def test_all_of_them_were_tried():
    tried = {name for *_, change in CASES for name in change}
    assert tried == {name for use in USES for name in use.options if name.startswith(("world.", "behavior."))}
