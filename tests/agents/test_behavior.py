"""Actor and critic in imagination: which action is paid by what, worked out by hand on made-up dreams."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.behavior import Behavior, between
from reverie.config.dreamer import BehaviorConfig, WorldConfig
from reverie.nn.actions import ActionCode, Policy
from reverie.nn.layers import Layers
from reverie.world.model import WorldModel
from reverie.world.rssm import State

OBSERVATION = spaces.Dict({"vector": spaces.Box(-1, 1, (3,), np.float32)})
WORLD = WorldConfig(deter=8, hidden=6, groups=2, classes=3, blocks=2, units=7, layers=1, bins=15)
CONFIG = BehaviorConfig(
    horizon=3, units=6, actor_layers=1, critic_layers=1, actor_scale=1.0, critic_head="normal", entropy=0.0,
    return_norm=False, slow="none", gamma=0.9, lam=0.5, unimix=0.1,
)  # fmt: skip
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
B, H = 2, 3
REWARD = torch.tensor([[100.0, 200.0], [1.0, -2.0], [3.0, 0.5], [-1.0, 4.0]])
CONT = torch.tensor([[0.9, 0.0], [0.8, 0.7], [0.5, 0.9], [0.3, 0.6]])
VALUE = torch.tensor([[2.0, 5.0], [1.0, 3.0], [4.0, -1.0], [6.0, 2.5]])


def parts(space=DISCRETE, made_up=True, **options):
    """A world, and a behaviour in it; made up are reward, continuation and value of every dreamt state."""
    torch.manual_seed(0)
    world = WorldModel(OBSERVATION, ActionCode(space).size, WORLD, CONFIG.gamma)
    config = replace(CONFIG, **options)
    policy = Policy(space, config.continuous, config.unimix)
    behavior = Behavior(world.features, policy, config, Layers(), bins=15)
    if made_up:
        world.reward, world.cont = lambda feature: REWARD, lambda feature: CONT
        behavior.judge.pred = lambda feature: VALUE
    return world, behavior


def learned(world, behavior, terminal=(False, False), seed=0):
    """What `losses` gives, and the dream behind it."""
    kept = []
    imagine = world.rssm.imagine

    def watched(*arguments):
        kept.append(imagine(*arguments))
        return kept[-1]

    world.rssm.imagine = watched
    g = torch.Generator().manual_seed(2)
    start = State(torch.randn(B, 8, generator=g), torch.randn(B, 6, generator=g))
    dream, returns = behavior.foreseen(world, start, torch.tensor(terminal), torch.Generator().manual_seed(seed))
    losses, metrics = behavior.judged(dream, returns)
    world.rssm.imagine = imagine
    return returns[0].detach(), losses, metrics, kept[0]


def logps(behavior, feature, action):
    """Log-probabilities (H, B) of the discrete actions taken at features, written out in float64."""
    outputs = behavior.actor(feature[:H]).detach().double().numpy()
    probs = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    probs = 0.9 * probs + 0.1 / 3
    return np.log((probs * action.numpy()).sum(-1)), -(probs * np.log(probs)).sum(-1)


def departing(reward, cont, value):
    """R_t = r_t+1 + c_t+1 ((1 - lam) v_t+1 + lam R_t+1), one number after the other."""
    found = np.zeros((H, B))
    for b in range(B):
        future = value[H, b]
        for t in reversed(range(H)):
            future = reward[t + 1, b] + cont[t + 1, b] * (0.5 * value[t + 1, b] + 0.5 * future)
            found[t, b] = future
    return found


def arriving(reward, cont, value):
    """G_t = r_t + c_t ((1 - lam) v_t+1 + lam G_t+1)."""
    found = np.zeros((H, B))
    for b in range(B):
        future = value[H, b]
        for t in reversed(range(H)):
            future = reward[t, b] + cont[t, b] * (0.5 * value[t + 1, b] + 0.5 * future)
            found[t, b] = future
    return found


NUMBERS = [x.double().numpy() for x in (REWARD, CONT, VALUE)]


def test_an_action_is_paid_by_the_reward_that_comes_next():
    world, behavior = parts()
    boot, losses, _, (feature, action) = learned(world, behavior)
    returns = departing(*NUMBERS)
    logp, _ = logps(behavior, feature, action)
    weight = np.cumprod(NUMBERS[1], 0)[:H]
    assert weight[0].tolist() == pytest.approx([0.9, 0.0])  # the start's own continuation counts
    np.testing.assert_allclose(losses["actor"].detach(), -weight * logp * (returns - NUMBERS[2][:H]), rtol=1e-4)
    np.testing.assert_allclose(boot, returns[0], rtol=1e-5)
    guess = behavior.critic(feature[:H]).detach().double().squeeze(-1).numpy()
    np.testing.assert_allclose(losses["critic"].detach(), weight * 0.5 * (guess - returns) ** 2, rtol=1e-4)


@pytest.mark.parametrize("arrival", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_through_the_dynamics_it_is_returns_that_pay_or_with_a_baseline_advantages(arrival, norm):
    returns = (arriving if arrival else departing)(*NUMBERS)
    span = max(1.0, np.percentile(returns, 95) - np.percentile(returns, 5)) if norm else 1.0
    paid = returns[1:] if arrival else returns
    steps = len(paid)
    weight = np.cumprod(NUMBERS[1], 0)[:steps]
    for baseline, taken in ((False, 0.0), (True, NUMBERS[2][:steps])):
        options = {"arrival": arrival, "dynamics_baseline": baseline, "return_norm": norm, "return_rate": 1.0}
        _, losses, _, _ = learned(*parts(BOX, gradient="dynamics", **options))
        np.testing.assert_allclose(losses["actor"].detach(), -weight * (paid - taken) / span, rtol=1e-5)
    assert not norm or span > 1.5


def test_where_values_include_their_reward_an_action_is_paid_by_the_state_it_leads_to():
    world, behavior = parts(arrival=True)
    boot, losses, _, (feature, action) = learned(world, behavior)
    returns = arriving(*NUMBERS)
    logp, _ = logps(behavior, feature, action)
    weight = np.cumprod(NUMBERS[1], 0)
    assert losses["actor"].shape == (H - 1, B)  # the return behind the last action is not known
    expected = -weight[: H - 1] * logp[: H - 1] * (returns[1:] - NUMBERS[2][: H - 1])
    np.testing.assert_allclose(losses["actor"].detach(), expected, rtol=1e-4)
    counted = np.concatenate([np.ones((1, B)), weight[: H - 1]])  # a state still gets its own reward
    guess = behavior.critic(feature[:H]).detach().double().squeeze(-1).numpy()
    np.testing.assert_allclose(losses["critic"].detach(), counted * 0.5 * (guess - returns) ** 2, rtol=1e-4)
    np.testing.assert_allclose(boot, returns[0], rtol=1e-5)
    _, later, _, _ = learned(*parts(arrival=True, train_start=False))
    np.testing.assert_allclose(later["critic"].detach(), losses["critic"].detach()[1:], rtol=1e-5)


@pytest.mark.parametrize("arrival", [False, True])
def test_what_is_imagined_from_the_end_of_an_episode_teaches_the_actor_nothing(arrival):
    world, behavior = parts(arrival=arrival, true_start=True)
    _, losses, _, _ = learned(world, behavior, terminal=(True, False))
    assert (losses["actor"][:, 0] == 0).all() and (losses["actor"][:, 1] != 0).all()
    _, losses, _, _ = learned(*parts(arrival=arrival))  # the predicted continuation of the second start is 0
    assert (losses["actor"][:, 1] == 0).all() and (losses["actor"][:, 0] != 0).all()


def test_the_true_continuation_of_the_start():
    world, behavior = parts(true_start=True)
    _, losses, _, (feature, action) = learned(world, behavior, terminal=(False, False))
    cont = np.concatenate([[[0.9, 0.9]], NUMBERS[1][1:]])  # gamma where the start is no end
    logp, _ = logps(behavior, feature, action)
    expected = -np.cumprod(cont, 0)[:H] * logp * (departing(NUMBERS[0], cont, NUMBERS[2]) - NUMBERS[2][:H])
    np.testing.assert_allclose(losses["actor"].detach(), expected, rtol=1e-4)


def test_advantages_are_divided_by_the_range_of_returns():
    plain, scaled = parts(), parts(return_norm=True, return_rate=1.0)
    _, losses, _, _ = learned(*plain)
    _, divided, metrics, _ = learned(*scaled)
    returns = departing(*NUMBERS)
    span = np.percentile(returns, 95) - np.percentile(returns, 5)
    assert span > 1 and metrics["return_range"].item() == pytest.approx(span, rel=1e-4)
    np.testing.assert_allclose(divided["actor"].detach(), losses["actor"].detach() / span, rtol=1e-4)
    np.testing.assert_allclose(divided["critic"].detach(), losses["critic"].detach(), rtol=1e-6)  # raw returns


@pytest.mark.parametrize("regularizer", ["entropy", "divergence"])
def test_the_regulariser_by_hand(regularizer):
    world, behavior = parts(entropy=0.25, regularizer=regularizer)
    _, losses, metrics, (feature, action) = learned(world, behavior)
    logp, entropy = logps(behavior, feature, action)
    weight = np.cumprod(NUMBERS[1], 0)[:H]
    bonus = entropy if regularizer == "entropy" else entropy - np.log(3)
    expected = -weight * (logp * (departing(*NUMBERS) - NUMBERS[2][:H]) + 0.25 * bonus)
    np.testing.assert_allclose(losses["actor"].detach(), expected, rtol=1e-4)
    assert metrics["entropy"].item() == pytest.approx(entropy.mean(), rel=1e-4)


def test_the_slow_critic_is_no_bootstrap_unless_asked_for():
    for target in (False, True):
        world, behavior = parts(made_up=False, slow="average", slow_target=target, slow_scale=0.0)
        world.reward, world.cont = lambda feature: REWARD, lambda feature: CONT
        behavior.critic.pred = lambda feature: VALUE
        behavior.slow.pred = lambda feature: VALUE * 10
        boot, losses, _, (feature, action) = learned(world, behavior)
        value = NUMBERS[2] * (10 if target else 1)
        returns = departing(NUMBERS[0], NUMBERS[1], value)
        np.testing.assert_allclose(boot, returns[0], rtol=1e-5)
        logp, _ = logps(behavior, feature, action)
        weight = np.cumprod(NUMBERS[1], 0)[:H]
        np.testing.assert_allclose(losses["actor"].detach(), -weight * logp * (returns - value[:H]), rtol=1e-4)


def test_the_critic_is_kept_near_the_slow_one():
    _, behavior = parts(slow="average", slow_scale=0.5)
    with torch.no_grad():
        behavior.slow.linear.bias += 3
    feature, target = torch.randn(4, 14), torch.randn(4)
    guess, slow = behavior.critic(feature).squeeze(-1), behavior.slow(feature).squeeze(-1)
    loss = behavior.critic_loss(feature, target)
    torch.testing.assert_close(loss, 0.5 * (guess - target) ** 2 + 0.5 * 0.5 * (guess - slow) ** 2)
    loss.sum().backward()
    assert all(parameter.grad is None for parameter in behavior.slow.parameters())


def test_replayed_rows_by_hand():
    """Six rows: an end in row 2, running out of time in row 4, and a new episode after each."""
    _, behavior = parts(gamma=0.9)
    reward = np.array([7.0, 1.0, 2.0, 0.0, 3.0, 5.0])
    last, terminal = np.array([0, 0, 1, 0, 1, 0]), np.array([0, 0, 1, 0, 0, 0])
    boot = np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    targets = [0.0] * 5
    targets[4] = 5 + 0.9 * 60.0
    targets[3] = 3 + 0.9 * 50.0  # the value of the last observation, not what follows it
    targets[2] = 0 + 0.9 * (0.5 * 40 + 0.5 * targets[3])
    targets[1] = 2.0  # nothing behind a real end
    targets[0] = 1 + 0.9 * (0.5 * 20 + 0.5 * targets[1])
    rows = {"reward": reward, "is_last": last.astype(bool), "is_terminal": terminal.astype(bool)}
    rows = {key: torch.from_numpy(x)[None] for key, x in rows.items()}
    rows["reward"] = rows["reward"].float()
    state = State(torch.randn(1, 6, 8).requires_grad_(), torch.randn(1, 6, 6).requires_grad_())
    del behavior.critic.pred
    loss, value = behavior.replay_loss(state, rows, torch.from_numpy(boot).float()[None], 0.9)
    guess = behavior.critic(state.feature).detach().double().squeeze(-1).numpy()[0]
    weight = 1 - last[:5]
    np.testing.assert_allclose(loss[0].detach(), weight * 0.5 * (guess[:5] - targets) ** 2, rtol=1e-4)
    np.testing.assert_allclose(value[0], guess, rtol=1e-4)
    loss.sum().backward()
    for part in state:  # the gradient goes on into the world model
        assert torch.equal(part.grad[0].abs().sum(-1) > 0, torch.tensor([True, True, False, True, False, False]))


def test_the_slow_critic_follows():
    for slow, expected in (("average", [0.25, 0.4375, 0.578125]), ("copy", [0.0, 0.0, 1.0])):
        _, behavior = parts(slow=slow, slow_rate=0.25, slow_every=3)
        before = [parameter.detach().clone() for parameter in behavior.slow.parameters()]
        for mine, theirs in zip(behavior.critic.parameters(), before):
            assert torch.equal(mine, theirs)  # a copy at first
        with torch.no_grad():
            for parameter in behavior.critic.parameters():
                parameter += 1
        for share in expected:
            behavior.follow(torch.tensor(True))
            for mine, old in zip(behavior.slow.parameters(), before):
                torch.testing.assert_close(mine, old + share)
    assert parts(slow="none")[1].slow is None


def test_schedules():
    assert between(0.1, None, 0.7) == 0.1
    assert between(0.1, 0.3, 0.5) == pytest.approx(0.2) and between(0.1, 0.3, 7.0) == pytest.approx(0.3)
    _, behavior = parts(gradient="mixed", mix=0.2, mix_end=0.0, entropy=1.0, entropy_end=0.5)
    behavior.schedule(0.5)
    assert behavior.mix.item() == pytest.approx(0.1) and behavior.entropy.item() == pytest.approx(0.75)


@pytest.mark.parametrize("head", ["symexp_twohot", "symlog_twohot"])
def test_values_are_exactly_zero_at_first(head):
    _, behavior = parts(made_up=False, critic_head=head, slow="average")
    feature = torch.randn(5, 14)
    assert (behavior.critic.pred(feature) == 0).all() and (behavior.slow.pred(feature) == 0).all()
