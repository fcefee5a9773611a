"""Priorities of replayed rows: how badly latents and rewards are predicted, whatever form the KL's loss has."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents import compiled
from reverie.agents.dreamer import Dreamer
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.tools.bench_rows import Fiction
from reverie.world.model import ROW_KL

OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
ACTION = spaces.Discrete(3)
B, T = 3, 6
SMALL = {"replay.prefill": 0, "replay.batch": B, "replay.length": T, "optim.model.warmup": 0, "world.bins": 15}
FORMS = {
    "dreamer_v1": {},  # free nats of the mean, which stays far below them
    "dreamer_v2": {},  # no free nats of the mean
    "dreamer_v3": {},  # free nats of each row
    "dreamer_v3_2023": {"world.free_nats": 0.0},
}


def agent_of(preset, fast="off", **options):
    torch.manual_seed(0)
    given = {name.replace("__", "."): value for name, value in options.items()}
    config = replaced(
        stacked([preset, "debug"]), SMALL | FORMS[preset] | {"replay.prioritised": 1.0, "run.fast": fast} | given
    )
    return Dreamer(OBSERVATION, ACTION, config, torch.device("cpu"))


def rows_of(agent):
    fiction = Fiction(agent, OBSERVATION, ACTION, B, torch.device("cpu"))
    length = T + int(agent.replay.start == "stored")
    return {key: value.transpose(0, 1).contiguous() for key, value in fiction.rows(length).items()}


@torch.no_grad()
def kl_and_reward_loss(agent, rows):
    """Of each row (B, T), by formulas, with the weights and the draws that its next update begins with."""
    agent = copy.deepcopy(agent)
    window = agent.window(rows)
    seen = agent.world.observe(window, agent.generator)
    prior = agent.world.rssm.prior(seen.state.deter)
    if agent.world.config.latent == "gaussian":
        (mean, std), (other, spread) = seen.posterior.chunk(2, -1), prior.chunk(2, -1)
        kl = torch.distributions.kl_divergence(
            torch.distributions.Normal(mean, std), torch.distributions.Normal(other, spread)
        ).sum(-1)
    else:
        kl = (seen.posterior.exp() * (seen.posterior - prior)).sum((-2, -1))
    return kl, agent.world.reward_loss(seen.state, window.rows)


@pytest.mark.parametrize("preset", FORMS)
def test_they_are_the_losses_of_each_row_as_if_no_nats_were_free(preset):
    agent = agent_of(preset)
    rows = rows_of(agent)
    kl, reward = kl_and_reward_loss(agent, rows)
    assert kl.std() > 1e-3 * kl.mean()  # rows differ in what is to be seen
    world = agent.world.config
    expected = (world.dyn_scale + world.rep_scale) * kl + world.reward_scale * reward
    found = agent.learn_replay(rows).writeback["priority"]
    context = found.shape[1] - T
    torch.testing.assert_close(found[:, context:], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(found[:, :context], found[:, context : context + 1][:, :context])


@pytest.mark.parametrize("preset", ["dreamer_v1", "dreamer_v3"])
def test_where_all_nats_are_free_rows_are_still_told_apart(preset):
    agent = agent_of(preset, world__free_nats=1e6, world__reward_scale=0.0)
    kl, _ = kl_and_reward_loss(agent, rows := rows_of(agent))
    learned = agent.learn_replay(rows)
    dyn_scale = agent.world.config.dyn_scale
    assert learned.metrics["world/dyn_loss"].item() == pytest.approx(1e6 * dyn_scale)
    found = learned.writeback["priority"][:, -T:]
    torch.testing.assert_close(found, (dyn_scale + agent.world.config.rep_scale) * kl, rtol=1e-4, atol=1e-6)


def test_they_are_no_metric_and_nothing_is_kept_for_them_unless_asked():
    plain, asked = agent_of("dreamer_v3", replay__prioritised=0.0), agent_of("dreamer_v3")
    rows = rows_of(plain)
    metrics = [agent.learn_replay(rows).metrics for agent in (plain, asked)]
    assert metrics[0].keys() == metrics[1].keys() and all(value.dim() == 0 for value in metrics[1].values())
    window = plain.window(rows)
    with torch.no_grad():
        told = [agent.world.losses(window, torch.Generator().manual_seed(0))[2] for agent in (plain, asked)]
    assert ROW_KL not in told[0] and told[1].pop(ROW_KL).shape == (B, T)
    assert told[0].keys() == told[1].keys()


def test_a_batch_that_is_not_finite_counts_nothing():
    agent = agent_of("dreamer_v2")
    rows = rows_of(agent)
    learned = agent.learn_replay(rows | {"vector": rows["vector"] * torch.nan})
    assert not learned.writeback["priority"].any()


@pytest.mark.parametrize("preset", ["dreamer_v1", "dreamer_v3"])
def test_compiled_updates_give_the_same(preset, monkeypatch, assert_updates_alike):
    """Traced and differentiated as for a GPU, but run by torch itself."""
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    plain, fast = (agent_of(preset, how) for how in ("off", "compile"))
    assert_updates_alike(plain, fast, rows := rows_of(plain))
    assert_priorities_alike(plain, fast, rows)


@pytest.mark.usefixtures("c_compiler")
@pytest.mark.parametrize("preset", ["dreamer_v2", "dreamer_v3"])
def test_updates_by_programs_give_the_same(preset, assert_updates_alike):
    plain, fast = (agent_of(preset, how) for how in ("off", "native"))
    fast.load_state_dict(plain.state_dict())
    assert_updates_alike(plain, fast, rows := rows_of(plain))
    assert_priorities_alike(plain, fast, rows)


def assert_priorities_alike(plain, fast, rows):
    expected, found = (agent.learn_replay(rows).writeback["priority"] for agent in (plain, fast))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
