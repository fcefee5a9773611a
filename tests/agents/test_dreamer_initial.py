"""Before anything is learned, losses have values that can be worked out by hand."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.dreamer import Dreamer
from reverie.config.options import replaced
from reverie.config.presets import stacked

CPU = torch.device("cpu")
VECTOR = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
IMAGE = spaces.Dict({"image": spaces.Box(0, 255, (32, 32, 3), np.uint8)})
ACTIONS, BINS, HORIZON = 6, 63, 5
SIZES = {"world.bins": BINS, "behavior.horizon": HORIZON, "behavior.units": 64, "world.units": 64}
B, T = 4, 9
TWO_HOT = pytest.mark.parametrize("preset", ["dreamer_v3", "dreamer_v3_2023"])


def agent_of(preset="dreamer_v3", space=VECTOR, **options):
    given = {name.replace("__", "."): value for name, value in options.items()}
    torch.manual_seed(0)
    return Dreamer(space, spaces.Discrete(ACTIONS), replaced(stacked([preset, "debug"]), SIZES | given), CPU)


def rows_of(agent, space=VECTOR):
    """A batch as the replay gives it, of noise: no episode ends in it."""
    g = torch.Generator().manual_seed(0)
    rows = {key: torch.zeros(B, T, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    rows["reward"] = 100 * torch.randn(B, T, generator=g)
    rows["action"] = torch.randint(ACTIONS, (B, T), generator=g)
    if space is IMAGE:
        rows["image"] = torch.randint(256, (B, T, 32, 32, 3), generator=g, dtype=torch.uint8)
    else:
        rows["vector"] = torch.randn(B, T, 3, generator=g)
    world = agent.world.config
    rows["deter"] = torch.zeros(B, T, world.deter, dtype=torch.bfloat16)
    return rows | {"stoch": torch.zeros(B, T, world.groups, dtype=torch.uint8)}


def first_metrics(agent, space=VECTOR):
    return {name: value.item() for name, value in agent.learn_replay(rows_of(agent, space)).metrics.items()}


@TWO_HOT
def test_two_hot_heads_predict_exactly_zero(preset):
    agent = agent_of(preset)
    feature = torch.randn(1000, agent.world.features)
    assert (agent.world.reward_head.pred(feature) == 0).all()
    assert (agent.behavior.critic.pred(feature) == 0).all() and (agent.behavior.slow.pred(feature) == 0).all()
    found = first_metrics(agent)
    assert [found[f"train/imagined_{name}"] for name in ("reward", "value", "return")] == [0, 0, 0]
    assert found["train/return_range"] == 1  # percentiles of returns are all 0, and the range is at least 1


@TWO_HOT
def test_their_losses_are_those_of_an_even_distribution_whatever_the_target(preset):
    """A two-hot target sums to 1 and every bin has log-probability -ln bins, so the cross-entropy is ln bins."""
    found = first_metrics(agent_of(preset))
    assert found["world/reward_loss"] == pytest.approx(math.log(BINS))


@TWO_HOT
def test_the_critics_loss_is_twice_that_discounted(preset):
    """Once for the return and once for the slow critic's value, weighted by the discounts up to each state."""
    agent = agent_of(preset, world__cont_head=False)
    gamma = agent.world.gamma
    counts = sum(gamma ** (t + 1) for t in range(HORIZON)) / HORIZON
    found = first_metrics(agent)
    assert found["train/critic_loss"] == pytest.approx(2 * math.log(BINS) * counts)
    assert found["train/imagined_cont"] == pytest.approx(gamma)


def test_the_critics_loss_on_replayed_rows_is_not_discounted():
    found = first_metrics(agent_of())
    assert found["train/replay_critic_loss"] == pytest.approx(0.3 * 2 * math.log(BINS))
    assert found["train/real_value"] == 0


def test_the_policy_begins_even_and_its_loss_is_the_entropy_bonus_alone():
    """Advantages are 0. Logits have a deviation of at most `actor_scale` = 0.01, since what enters the last layer has
    been normalised and silu makes numbers smaller; an entropy then lacks 0.01 ** 2 / 2 = 5e-5 of its maximum, and
    ten times that is allowed here. With a scale of 1 it would lack some 0.1.
    """
    agent = agent_of(world__cont_head=False)
    found = first_metrics(agent)
    lacking = math.log(ACTIONS) - found["train/entropy"]
    assert 0 < lacking < 5e-4
    counts = sum(agent.world.gamma ** (t + 1) for t in range(HORIZON)) / HORIZON
    assert found["train/actor_loss"] == pytest.approx(-3e-4 * math.log(ACTIONS) * counts, rel=5e-4)
    assert math.log(ACTIONS) - first_metrics(agent_of(behavior__actor_scale=1.0))["train/entropy"] > 0.02


@pytest.mark.parametrize(
    ("preset", "free", "dyn", "rep"),
    [("dreamer_v3", 1.0, 1.0, 0.1), ("dreamer_v3_2023", 1.0, 0.5, 0.1), ("dreamer_v1", 3.0, 1.0, 1.0)],
)
def test_divergences_cost_at_least_the_free_nats(preset, free, dyn, rep):
    """Both are of the same two distributions, and differ in weight and gradient only."""
    for nats in (free, 1000.0):  # more than can be, so that nothing but the free nats is left
        found = first_metrics(agent_of(preset, world__free_nats=nats))
        assert found["world/dyn_loss"] >= dyn * nats - 1e-6
        assert found["world/rep_loss"] == pytest.approx(found["world/dyn_loss"] * rep / dyn)
    assert found["world/dyn_loss"] == pytest.approx(dyn * 1000)


@TWO_HOT
def test_divergence_and_entropies_of_categorical_latents_are_bounded(preset):
    """1 % of a prediction is uniform: no class is rarer than 0.01 / K, so one choice costs at most ln (K / 0.01).
    Logits have a deviation of at most 1, so that an entropy lacks about 1 / 2 of its maximum for each choice, or less.
    """
    agent = agent_of(preset)
    groups, classes = agent.world.config.groups, agent.world.config.classes
    found = first_metrics(agent)
    assert 0 < found["world/kl"] < groups * math.log(classes / 0.01)
    for name in ("world/prior_entropy", "world/posterior_entropy"):
        assert groups * (math.log(classes) - 0.5) < found[name] < groups * math.log(classes)


def test_the_loss_of_continuing_lies_within_a_hands_breadth_of_a_fair_coins():
    """Softplus lies between ln 2 + x / 2 and that plus x ** 2 / 8, so the cross-entropy with a target t lies between
    ln 2 + (1 / 2 - t) x and that plus x ** 2 / 8, for outputs x with a deviation of at most 1 around 0.
    """
    agent = agent_of()
    feature = torch.randn(1000, agent.world.features)
    x = agent.world.cont_head(feature).squeeze(-1)
    assert x.abs().mean() < 1
    for target in (0.0, agent.world.gamma):
        least = math.log(2) + (0.5 - target) * x
        loss = agent.world.cont_head.loss(feature, torch.full((1000,), target))
        assert (loss > least - 1e-6).all() and (loss < least + x.square() / 8 + 1e-6).all()


def test_images_begin_gray():
    """A pixel p costs p ** 2 against black and (1 - p) ** 2 against white: together at least 1 / 2, that of p = 1 / 2.
    Outputs x before the sigmoid have a deviation of at most 1, and each adds at most x ** 2 / 8.
    """
    agent = agent_of(space=IMAGE, world__depth=16)
    losses = []
    for shade in (0, 255):
        rows = rows_of(agent, IMAGE) | {"image": torch.full((B, T, 32, 32, 3), shade, dtype=torch.uint8)}
        state, *_ = agent.world.losses(agent.window(rows), torch.Generator().manual_seed(1))
        losses.append(agent.world.decoder.losses(state, {"image": rows["image"][:, 1:]})["image"].mean().item())
    pixels = 32 * 32 * 3
    assert 0.5 * pixels < sum(losses) < (0.5 + 1 / 8) * pixels
