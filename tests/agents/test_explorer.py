"""The explorer: what its reward is, where it is paid, what the ensemble learns from, and whom each loss teaches."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.behavior import policy_of
from reverie.agents.explorer import Explorer
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.nn.actions import ActionCode
from reverie.nn.layers import Layers
from reverie.world.model import Seen, Window, WorldModel
from reverie.world.rssm import State

OBSERVATION = spaces.Dict({"vector": spaces.Box(-1, 1, (3,), np.float32)})
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
OPTIONS = {
    "world.deter": 8, "world.blocks": 2, "world.bins": 15, "behavior.horizon": 3, "behavior.entropy": 0.0,
    "behavior.actor_scale": 1.0, "behavior.slow_scale": 0.0, "behavior.critic_head": "normal",
    "behavior.return_norm": False, "explore.normalize": False,
}  # fmt: skip
B, T = 3, 5


def parts(space=DISCRETE, preset="dreamer_v3", **options):
    torch.manual_seed(0)
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    config = replaced(stacked([preset, "plan2explore", "debug"]), OPTIONS | dotted)
    size = ActionCode(space).size
    world = WorldModel(OBSERVATION, size, config.world, config.behavior.gamma)
    return world, Explorer(world, size, policy_of(space, config.behavior), config, Layers())


def window_of(world, size=3):
    g = torch.Generator().manual_seed(1)
    latent = world.rssm.latent.size
    rows = {"vector": torch.randn(B, T, 3, generator=g), "is_first": torch.zeros(B, T, dtype=torch.bool)}
    rows["is_first"][1, 2] = True
    start = State(torch.randn(B, 8, generator=g), torch.randn(B, latent, generator=g))
    state = State(*(torch.randn(B, T, x.shape[-1], generator=g).requires_grad_() for x in start))
    seen = Seen(state, torch.zeros(B, T, 1), world.encoder(rows))
    return Window(rows, start, torch.randn(B, T, size, generator=g), rows["is_first"]), seen


def losses_of(world, explorer, batch=4):
    g = torch.Generator().manual_seed(2)
    start = State(torch.randn(batch, 8, generator=g), torch.randn(batch, world.rssm.latent.size, generator=g))
    terminal = torch.zeros(batch, dtype=torch.bool)
    dream, returns = explorer.foreseen(world, start, terminal, torch.Generator().manual_seed(0))
    return explorer.judged(dream, returns)[0]


def reached(*modules):
    return any(p.grad is not None and p.grad.abs().sum() > 0 for module in modules for p in module.parameters())


def test_an_action_is_paid_with_the_state_it_leads_to():
    """Disagreement about what follows a state belongs to the reward of the next one, like any reward."""
    world, explorer = parts(explore__intrinsic=2.0, explore__extrinsic=10.0)
    given = {}
    explorer.ensemble.register_forward_pre_hook(lambda module, args: given.update(feature=args[0], action=args[1]))
    explorer.measure = lambda guesses: torch.tensor([[1.0], [2.0], [4.0]])
    world.reward = lambda feature: torch.tensor([[0.1], [0.2], [0.3], [0.4]])
    feature, action = torch.randn(4, 1, world.features), torch.randn(3, 1, 3)
    reward, _, _ = explorer.foresee(world, feature, action)
    torch.testing.assert_close(reward, torch.tensor([[1.0], [2 + 2.0], [4 + 3.0], [8 + 4.0]]))
    assert torch.equal(given["feature"], feature[:-1]) and torch.equal(given["action"], action)


def test_without_a_share_of_the_task_its_rewards_do_not_matter():
    world, explorer = parts()
    before = losses_of(world, explorer)
    world.reward = lambda feature: torch.full(feature.shape[:-1], torch.nan)
    for name, loss in losses_of(world, explorer).items():
        assert torch.equal(loss, before[name])


@pytest.mark.parametrize("log", [False, True])
def test_disagreement_is_paid_in_multiples_of_its_mean(log):
    _, explorer = parts(explore__normalize=True, explore__log=log)
    found = explorer.novelty(torch.tensor([0.0, 0.002, 0.004]))
    expected = torch.tensor([0.0, 1.0, 2.0])
    torch.testing.assert_close(found, expected.log1p() if log else expected)
    assert (found >= 0).all()  # a negative reward would make the end of an episode worth reaching
    _, raw = parts(explore__log=log)
    plain = torch.tensor([0.0, 0.002])
    torch.testing.assert_close(raw.novelty(plain), plain.log1p() if log else plain)


def test_each_row_is_predicted_from_the_state_before_it_and_the_action_that_led_there():
    world, explorer = parts(explore__target="stoch")
    window, seen = window_of(world)
    given = {}
    explorer.ensemble.register_forward_pre_hook(lambda module, args: given.update(before=args[0], action=args[1]))
    explorer.study(seen, window)
    assert torch.equal(given["before"][:, 0], window.start.feature)
    assert torch.equal(given["before"][:, 1:], seen.state.feature[:, :-1])
    assert torch.equal(given["action"], window.action)


def test_the_loss_is_the_members_mean_of_squared_errors():
    _, explorer = parts()
    explorer.ensemble.forward = lambda before, action: torch.tensor([[[1.0, 0.0]], [[3.0, 2.0]]])
    loss, disagreement = explorer.studied(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 2), torch.ones(1))
    assert loss.tolist() == [(1 + 9 + 4) / 2]
    torch.testing.assert_close(disagreement, torch.tensor([2.0]))


def test_nothing_leads_to_the_first_row_of_an_episode():
    world, explorer = parts(explore__target="stoch")
    window, seen = window_of(world)
    loss, disagreement = explorer.study(seen, window)
    known = torch.ones(B, T, dtype=torch.bool)
    known[1, 2] = False
    assert torch.equal(loss > 0, known) and torch.equal(disagreement > 0, known)


@pytest.mark.parametrize("target", ["embed", "stoch", "deter", "feature"])
def test_the_ensemble_learns_and_the_world_model_does_not(target):
    world, explorer = parts(explore__target=target)
    window, seen = window_of(world)
    loss, disagreement = explorer.study(seen, window)
    loss.mean().backward()
    assert reached(explorer.ensemble) and not reached(world, explorer.actor, explorer.critic)
    state = seen.state
    assert state.deter.grad is None and state.stoch.grad is None and not disagreement.requires_grad
    wanted = {"embed": seen.embed, "stoch": state.stoch, "deter": state.deter, "feature": state.feature}
    assert explorer.ensemble(state.feature, window.action).shape[-1] == wanted[target].shape[-1]
    assert torch.equal(explorer.target(seen), wanted[target])


CASES = [(gradient, space, arrival) for gradient in ("reinforce", "dynamics", "mixed") for space in (DISCRETE, BOX)
         for arrival in (False, True)]  # fmt: skip


@pytest.mark.parametrize("gradient, space, arrival", CASES)
def test_dreams_teach_the_explorer_and_neither_ensemble_nor_world(gradient, space, arrival):
    world, explorer = parts(space, behavior__gradient=gradient, behavior__arrival=arrival)
    losses = losses_of(world, explorer)
    losses["actor"].mean().backward()
    assert reached(explorer.actor) and not reached(explorer.critic, explorer.ensemble, world)
    explorer.actor.zero_grad()
    losses["critic"].mean().backward()
    assert reached(explorer.critic) and not reached(explorer.actor, explorer.ensemble, world)
    assert all(parameter.requires_grad for parameter in explorer.ensemble.parameters())


@pytest.mark.parametrize("space", [DISCRETE, BOX])
def test_the_gradient_through_the_dynamics_is_that_of_disagreement(space):
    """With values, discounts and rewards that do not depend on states, nothing but the ensemble is left to follow."""
    found = []
    for through in (True, False):
        world, explorer = parts(space, behavior__gradient="dynamics")
        world.cont = lambda feature: torch.full(feature.shape[:-1], 0.9)
        explorer.critic.pred = lambda feature: torch.zeros(feature.shape[:-1])
        if not through:
            explorer.measure = lambda guesses, measure=explorer.measure: measure(guesses.detach())
        loss = losses_of(world, explorer)["actor"].mean()
        if loss.requires_grad:
            loss.backward()
        found.append(reached(explorer.actor))
    assert found == [True, False]


def test_the_critic_skips_starts_whose_reward_on_arrival_is_unknown():
    assert losses_of(*parts(behavior__arrival=False))["critic"].shape[0] == 3
    assert losses_of(*parts(behavior__arrival=True))["critic"].shape[0] == 2


def test_half_precision_still_teaches():
    for gradient in ("reinforce", "dynamics"):
        world, explorer = parts(behavior__gradient=gradient)
        window, seen = window_of(world)
        with torch.autocast("cpu", torch.bfloat16):
            losses = losses_of(world, explorer) | {"ensemble": explorer.study(seen, window)[0]}
        assert all(loss.dtype == torch.float32 for loss in losses.values())
        sum(loss.mean() for loss in losses.values()).backward()
        assert all(reached(part) for part in (explorer.actor, explorer.critic, explorer.ensemble))
        assert not reached(world)


def test_members_agree_where_they_have_seen_and_differ_elsewhere():
    """Also where what follows is random: that is learned to be so."""
    world, explorer = parts(explore__target="deter", explore__members=5, explore__units=32)
    g = torch.Generator().manual_seed(0)
    known, action = torch.randn(16, world.features, generator=g), torch.zeros(16, 3)
    optimiser = torch.optim.Adam(explorer.ensemble.parameters(), 3e-3)
    for _ in range(300):
        target = known[:, :8] + torch.randn(16, 8, generator=g)
        loss = explorer.studied(known, action, target, torch.ones(16))[0].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        seen = explorer.measure(explorer.ensemble(known, action)).mean()
        unseen = explorer.measure(explorer.ensemble(-2 * known, action)).mean()
    assert unseen > 2 * seen
