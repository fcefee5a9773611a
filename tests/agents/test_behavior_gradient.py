"""Whom the losses of actor and critic teach, with the entropy term off: it would hide a detached graph."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.behavior import Behavior
from reverie.config.dreamer import BehaviorConfig, WorldConfig
from reverie.nn.actions import ActionCode, Policy
from reverie.nn.layers import Layers
from reverie.world.model import WorldModel
from reverie.world.rssm import State

OBSERVATION = spaces.Dict({"vector": spaces.Box(-1, 1, (3,), np.float32)})
WORLD = WorldConfig(deter=8, hidden=6, groups=2, classes=3, blocks=2, units=7, layers=1, bins=15, reward_head="normal")
CONFIG = BehaviorConfig(
    horizon=3, units=6, actor_layers=1, critic_layers=1, actor_scale=1.0, critic_head="normal", entropy=0.0,
    return_norm=False, slow="average", slow_scale=0.0,
)  # fmt: skip
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
MODES = [
    (gradient, space, {"arrival": arrival})
    for gradient in ("reinforce", "dynamics", "mixed")
    for space in (DISCRETE, BOX)
    for arrival in (False, True)
]


def parts(space=BOX, world=WORLD, **options):
    torch.manual_seed(0)
    config = replace(CONFIG, **options)
    model = WorldModel(OBSERVATION, ActionCode(space).size, world, config.gamma)
    policy = Policy(space, config.continuous, config.unimix)
    return model, Behavior(model.features, policy, config, Layers(), bins=15)


def start_of(batch=4):
    g = torch.Generator().manual_seed(2)
    return State(torch.randn(batch, 8, generator=g).requires_grad_(), torch.randn(batch, 6, generator=g))


def losses_of(world, behavior, seed=0, batch=4):
    start = start_of(batch)
    terminal = torch.zeros(batch, dtype=torch.bool)
    dream, returns = behavior.foreseen(world, start, terminal, torch.Generator().manual_seed(seed))
    return behavior.judged(dream, returns)[0], start


def reached(module):
    return any(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())


def gradient_of(module):
    return torch.cat([p.grad.flatten() for p in module.parameters()]).clone()


@pytest.mark.parametrize("gradient, space, more", MODES)
def test_each_loss_teaches_its_own_network_and_the_world_nothing(gradient, space, more):
    world, behavior = parts(space, gradient=gradient, **more)
    losses, start = losses_of(world, behavior)
    losses["actor"].mean().backward()
    assert reached(behavior.actor) and not reached(behavior.critic)
    behavior.actor.zero_grad()
    losses["critic"].mean().backward()
    assert reached(behavior.critic) and not reached(behavior.actor)
    assert not reached(world) and start.deter.grad is None
    assert all(parameter.requires_grad for parameter in (*world.parameters(), *behavior.critic.parameters()))
    assert not any(parameter.requires_grad for parameter in behavior.slow.parameters())


@pytest.mark.parametrize("space", [DISCRETE, BOX])
def test_reinforce_needs_no_slope_of_the_reward_and_dynamics_nothing_else(space):
    """Rewards that do not depend on states; then advantages that are all zero."""
    learns = {}
    for gradient in ("reinforce", "dynamics"):
        world, behavior = parts(space, gradient=gradient)
        flat = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
        world.reward = lambda state, flat=flat: flat
        world.cont = lambda state: torch.full((4, 4), 0.9)
        behavior.critic.pred = lambda feature, flat=flat: flat
        losses, _ = losses_of(world, behavior)
        learns[gradient, "flat"] = losses["actor"].requires_grad and bool(
            losses["actor"].mean().backward() is None and reached(behavior.actor)
        )
        world, behavior = parts(space, gradient=gradient, lam=0.0)
        world.cont = lambda state: torch.zeros(4, 4).index_fill(0, torch.tensor([0]), 1.0)
        reward = world.reward
        # the return of every state is the next reward, and so is its value: no advantage
        behavior.critic.pred = lambda feature: torch.zeros(4, 4)
        world.reward = lambda state, reward=reward: reward(state) - reward(state).detach()
        losses, _ = losses_of(world, behavior)
        losses["actor"].mean().backward()
        learns[gradient, "sloped"] = reached(behavior.actor)
    assert learns == {
        ("reinforce", "flat"): True, ("dynamics", "flat"): False,
        ("reinforce", "sloped"): False, ("dynamics", "sloped"): True,
    }  # fmt: skip


def test_automatic_takes_the_gradient_that_fits_the_actions():
    for space, through in ((DISCRETE, False), (BOX, True)):
        _, behavior = parts(space, gradient="auto")
        assert behavior.through_dynamics == through and behavior.by_score != through


@pytest.mark.parametrize("space", [DISCRETE, BOX])
def test_mixed_gradients_are_the_mixture(space):
    found = {}
    for gradient in ("reinforce", "dynamics", "mixed"):
        world, behavior = parts(space, gradient=gradient, mix=0.3)
        losses, _ = losses_of(world, behavior)
        losses["actor"].mean().backward()
        found[gradient] = gradient_of(behavior.actor)
    expected = 0.3 * found["dynamics"] + 0.7 * found["reinforce"]
    torch.testing.assert_close(found["mixed"], expected, rtol=1e-3, atol=1e-6)
    assert (found["dynamics"] - found["reinforce"]).abs().max() > 1e-4


@pytest.mark.parametrize("baseline", [False, True])
@pytest.mark.parametrize("arrival", [False, True])
def test_the_gradient_through_the_dynamics_is_the_slope_of_returns_or_of_advantages(arrival, baseline):
    """By finite differences of an actor whose actions do not depend on the state, in a smooth world."""
    smooth = replace(WORLD, latent="gaussian", groups=6, norm="none")
    options = {"continuous": "truncated_normal", "actor_layers": 0, "arrival": arrival}  # actions beyond 1 are cut
    world, behavior = parts(BOX, smooth, gradient="dynamics", dynamics_baseline=baseline, **options)
    world.cont = lambda feature: torch.full(feature.shape[:-1], 0.9)  # weights that actions do not change
    bias = behavior.actor[-1].bias
    with torch.no_grad():
        behavior.actor[-1].weight.zero_()
        bias.copy_(torch.tensor([0.5, -0.7, 0.3, 0.1]))

    def loss():
        return losses_of(world, behavior, batch=64)[0]["actor"].mean()

    loss().backward()
    for i in range(len(bias)):
        values = []
        for step in (0.02, -0.02):
            with torch.no_grad():
                bias[i] += step
                values.append(loss().item())
                bias[i] -= step
        assert bias.grad[i].item() == pytest.approx((values[0] - values[1]) / 0.04, rel=0.02, abs=2e-5)


@pytest.mark.parametrize("norm", [False, True])
def test_a_baseline_charges_actions_for_the_values_they_lead_to(norm):
    """The gradients with it and without it differ by that of the values, weighted and scaled as returns are."""
    found = {}
    for baseline in (False, True):
        options = {"return_norm": norm, "return_rate": 1.0, "dynamics_baseline": baseline}
        world, behavior = parts(BOX, gradient="dynamics", **options)
        world.cont = lambda feature: torch.full(feature.shape[:-1], 0.9)
        start = start_of()
        ends = torch.zeros(4, dtype=torch.bool)
        dream, returns = behavior.foreseen(world, start, ends, torch.Generator().manual_seed(0))
        losses, _ = behavior.judged(dream, returns * 100)
        losses["actor"].mean().backward(retain_graph=True)
        found[baseline] = gradient_of(behavior.actor)
    behavior.actor.zero_grad()
    weight = torch.tensor([0.9, 0.81, 0.729])[:, None]
    scale = behavior.range.range if norm else 1.0
    assert not norm or scale > 2
    (weight * dream.value[:3] / scale).mean().backward()
    torch.testing.assert_close(found[True] - found[False], gradient_of(behavior.actor), rtol=1e-3, atol=1e-6)
    assert gradient_of(behavior.actor).abs().max() > 1e-4


def test_discrete_actions_have_the_baseline_of_reinforce_alone():
    found = []
    for baseline in (False, True):
        world, behavior = parts(DISCRETE, gradient="auto", dynamics_baseline=baseline)
        losses_of(world, behavior)[0]["actor"].mean().backward()
        found.append(gradient_of(behavior.actor))
    assert torch.equal(*found) and found[0].abs().max() > 0


def test_policies_see_states_without_gradient():
    """Through the dynamics, an action passes gradients to later rewards but not to the choice of later actions."""
    world, behavior = parts(BOX, gradient="dynamics", horizon=2)
    seen = []
    actor = behavior.actor
    actor.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].requires_grad))
    losses, _ = losses_of(world, behavior)
    assert losses["actor"].requires_grad and seen and not any(seen)


@pytest.mark.parametrize("gradient", ["reinforce", "dynamics", "mixed"])
def test_the_range_of_returns_divides_every_kind_of_gradient(gradient):
    found = []
    for norm in (False, True):
        world, behavior = parts(BOX, gradient=gradient, return_norm=norm, return_rate=1.0)
        reward = world.reward
        world.reward = lambda state, reward=reward: reward(state) * 50
        losses, _ = losses_of(world, behavior)
        losses["actor"].mean().backward()
        found.append(gradient_of(behavior.actor))
    span = behavior.range.range
    assert span > 2
    torch.testing.assert_close(found[1] * span, found[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("space", [DISCRETE, BOX])
@pytest.mark.parametrize("regularizer", ["entropy", "divergence"])
def test_the_regulariser_spreads_the_policy(space, regularizer):
    world, behavior = parts(space, entropy=10.0, regularizer=regularizer)
    world.reward = lambda state: torch.zeros(4, 4)
    behavior.critic.pred = lambda feature: torch.zeros(4, 4)
    before = behavior(start_of().feature).entropy().mean().item()
    losses, _ = losses_of(world, behavior)
    losses["actor"].mean().backward()
    with torch.no_grad():
        for parameter in behavior.actor.parameters():
            parameter -= 0.01 * parameter.grad
    after = behavior(start_of().feature).entropy().mean().item()
    assert after > before


def test_half_precision_dreams_still_teach():
    """Weights first used without gradient, in half precision, must not lose theirs."""
    for gradient in ("reinforce", "dynamics"):
        world, behavior = parts(DISCRETE, gradient=gradient, critic_head="symexp_twohot", slow_scale=1.0)
        with torch.autocast("cpu", torch.bfloat16):
            losses, _ = losses_of(world, behavior)
        assert all(loss.dtype == torch.float32 for loss in losses.values())
        sum(loss.mean() for loss in losses.values()).backward()
        for name, parameter in behavior.actor.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
        assert behavior.critic.linear.weight.grad.abs().sum() > 0
        assert not reached(world)
