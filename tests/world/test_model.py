"""The world model's losses, by hand on small cases: what is compared with what, and who gets the gradient."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.config.dreamer import WorldConfig
from reverie.world.model import Window, WorldModel
from reverie.world.rssm import State

SPACE = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
CONFIG = WorldConfig(deter=8, hidden=6, groups=2, classes=3, blocks=2, units=7, layers=1, bins=15)
B, T, GAMMA = 2, 5, 0.9


def world_of(shaken=True, **options):
    torch.manual_seed(0)
    world = WorldModel(SPACE, 2, replace(CONFIG, **options), GAMMA)
    if shaken:  # heads that begin at zero would hide what reaches them
        with torch.no_grad():
            for parameter in world.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    return world


def window_of(seed=1, first=()):
    g = torch.Generator().manual_seed(seed)
    flags = {key: torch.zeros(B, T, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    for place in first:
        flags["is_first"][place] = True
    rows = {"vector": torch.randn(B, T, 3, generator=g), "reward": torch.randn(B, T, generator=g) * 2, **flags}
    start = State(torch.randn(B, 8, generator=g), torch.randn(B, 6, generator=g))
    return Window(rows, start, torch.randn(B, T, 2, generator=g), flags["is_first"].clone())


def losses_of(world, window, seed=0):
    return world.losses(window, torch.Generator().manual_seed(seed))


def with_latents(world, probs):
    """The world with posterior and prior probabilities (2, B, T, 2, 3) that were made up; their log-probabilities."""
    left, right = (torch.tensor(each).log().requires_grad_() for each in probs)
    state = State(torch.zeros(B, T, 8), torch.zeros(B, T, 6))
    world.rssm.observe = lambda *_: (state, left)
    world.rssm.prior = lambda deter: right
    return left, right


PEAKED, EVEN = [0.98, 0.01, 0.01], [1 / 3] * 3
FAR = sum(p * math.log(p * 3) for p in PEAKED)  # KL of one peaked choice from an even one: 0.98 nats


def latents(count):
    """Posteriors with 0, 1 or 2 peaked groups in turn over the rows; the prior is even everywhere."""
    left = np.array([[[PEAKED if g < (b * T + t) % count else EVEN for g in range(2)] for t in range(T)]
                     for b in range(B)])  # fmt: skip
    return left, np.broadcast_to(EVEN, left.shape)


def test_free_nats_are_of_each_row_after_the_sum_over_groups():
    world = world_of(dyn_scale=0.5, rep_scale=0.1, free_nats=1.0)
    left, right = with_latents(world, latents(3))
    _, losses, metrics = losses_of(world, window_of())
    rows = [FAR * ((b * T + t) % 3) for b in range(B) for t in range(T)]
    assert FAR < 1 < 2 * FAR  # one peaked group is free, two are not
    expected = torch.tensor([max(1.0, kl) for kl in rows]).reshape(B, T)
    torch.testing.assert_close(losses["dyn"].float(), 0.5 * expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(losses["rep"].float(), 0.1 * expected, rtol=1e-4, atol=0)
    assert metrics["kl"].item() == pytest.approx(np.mean(rows), rel=1e-4)  # as it is, nothing free
    (losses["dyn"] + losses["rep"]).sum().backward()
    counted = torch.tensor([kl > 1 for kl in rows]).reshape(B, T)
    for params in (left, right):
        assert torch.equal(params.grad.abs().sum((-2, -1)) > 0, counted)


@pytest.mark.parametrize("beyond", [0.1, -0.1])
def test_free_nats_of_the_mean(beyond):
    mean = 0.9 * FAR  # of ten rows with 0, 1, 2, 0, 1, 2, 0, 1, 2 and 0 peaked groups
    world = world_of(free_mean=True, free_nats=mean - beyond, dyn_scale=0.8, rep_scale=0.2)
    left, right = with_latents(world, latents(3))
    _, losses, _ = losses_of(world, window_of())
    expected = torch.full((B, T), max(mean, mean - beyond))
    torch.testing.assert_close(losses["dyn"].float(), 0.8 * expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(losses["rep"].float(), 0.2 * expected, rtol=1e-4, atol=0)
    (losses["dyn"] + losses["rep"]).mean().backward()
    for params in (left, right):
        moved = params.grad.abs().sum((-2, -1)) > 0
        # beyond the threshold every row counts, also those that are below it themselves
        assert moved[0, 1:3].all() if beyond > 0 else not moved.any()


def test_dyn_moves_the_prior_alone_and_rep_the_posterior_alone():
    world = world_of(free_nats=0.0)
    left, right = with_latents(world, latents(2))
    _, losses, _ = losses_of(world, window_of())
    for name, moves, still in (("dyn", right, left), ("rep", left, right)):
        gradients = torch.autograd.grad(losses[name].sum(), [moves, still], retain_graph=True, allow_unused=True)
        assert gradients[0].abs().sum() > 0 and (gradients[1] is None or gradients[1].abs().sum() == 0)


def test_the_divergence_is_of_the_posterior_from_the_prior():
    world = world_of(free_nats=0.0, dyn_scale=1.0)
    with_latents(world, latents(3)[::-1])  # now the prior is peaked
    _, losses, _ = losses_of(world, window_of())
    reverse = sum(math.log(1 / 3 / p) / 3 for p in PEAKED)
    assert losses["dyn"][0, 1].item() == pytest.approx(reverse, rel=1e-4)


def test_each_row_s_prediction_is_made_from_its_own_state():
    world = world_of(free_nats=0.0)
    kept = []
    observe = world.rssm.observe
    world.rssm.observe = lambda *arguments: kept.append(observe(*arguments)) or kept[-1]
    _, losses, _ = losses_of(world, window_of(first=((0, 2),)))
    state, posterior = kept[0]
    for t in range(T):
        left, right = posterior[:, t].double(), world.rssm.prior(state.deter[:, t]).double()
        expected = (left.exp() * (left - right)).sum((-2, -1))
        torch.testing.assert_close(losses["dyn"][:, t].double(), expected, rtol=1e-4, atol=1e-5)


HEADS = {"decoder": "vector", "reward": "reward", "cont": "cont"}


@pytest.mark.parametrize("heads", [(), ("decoder",), ("reward", "cont"), ("decoder", "reward", "cont")])
def test_only_chosen_heads_teach_the_features(heads):
    world = world_of(grad_heads=heads)
    _, losses, _ = losses_of(world, window_of())
    for head, name in HEADS.items():
        (gradient,) = torch.autograd.grad(
            losses[name].sum(), world.rssm.posterior_out.weight, retain_graph=True, allow_unused=True
        )
        assert (gradient is not None and gradient.abs().sum() > 0) == (head in heads), head
    sum(loss.mean() for loss in losses.values()).backward()
    for head in (world.decoder, world.reward_head, world.cont_head):
        assert all(parameter.grad.abs().sum() > 0 for parameter in head.parameters())  # all learn themselves


@pytest.mark.parametrize("discounted", [True, False])
def test_the_continue_head_learns_the_end_or_the_discount(discounted):
    world = world_of(cont_discounted=discounted, cont_scale=5.0)
    window = window_of()
    window.rows["is_terminal"][0, 2] = window.rows["is_last"][0, 2] = window.rows["is_last"][1, 4] = True
    state, losses, _ = losses_of(world, window)
    prob = world.cont_head.pred(state.feature).double()
    target = torch.full((B, T), GAMMA if discounted else 1.0, dtype=torch.float64)
    target[0, 2] = 0  # the end of an episode; running out of time is none
    expected = -5 * (target * prob.log() + (1 - target) * (1 - prob).log())
    torch.testing.assert_close(losses["cont"].double(), expected, rtol=1e-4, atol=1e-5)
    cont = world.cont(state.feature).double()
    torch.testing.assert_close(cont, prob if discounted else prob * GAMMA, rtol=1e-5, atol=0)  # the mean, not the mode


def test_without_a_continue_head_the_discount_is_even():
    world = world_of(cont_head=False)
    state, losses, _ = losses_of(world, window_of())
    assert "cont" not in losses
    torch.testing.assert_close(world.cont(state.feature), torch.full((B, T), GAMMA))


@pytest.mark.parametrize("target, squash", [("raw", lambda r: r), ("tanh", math.tanh)])
def test_reward_targets(target, squash):
    world = world_of(reward_head="normal", reward_target=target, reward_scale=2.0)
    window = window_of()
    state, losses, _ = losses_of(world, window)
    guess = world.reward(state.feature)
    for b, t in ((0, 0), (1, 3)):  # the reward of a row comes with its own state
        expected = 2 * 0.5 * (guess[b, t].item() - squash(window.rows["reward"][b, t].item())) ** 2
        assert losses["reward"][b, t].item() == pytest.approx(expected, rel=1e-4)


def test_rewards_are_expected_to_be_exactly_zero_at_first():
    for head in ("symexp_twohot", "symlog_twohot"):
        world = world_of(shaken=False, reward_head=head, bins=255)
        state, losses, _ = losses_of(world, window_of())
        assert (world.reward(state.feature) == 0).all()
        assert losses["reward"][0, 0].item() == pytest.approx(math.log(255), rel=1e-5)


def test_filtering_step_by_step_equals_observing_the_window():
    """Across the end of an episode, with the same draws."""
    for options in ({}, {"initial": "learned", "cell": "norm"}, {"latent": "gaussian", "groups": 6, "cell": "plain"}):
        world = world_of(**options)  # a Gaussian of six numbers is as wide as two choices among three
        window = window_of(first=((0, 3), (1, 0)))
        latent = world.rssm.latent
        noise = latent.noise((B, T), torch.Generator().manual_seed(4))
        latent.noise = lambda *_, noise=noise: noise
        whole, _, _ = losses_of(world, window)
        state = window.start
        for t in range(T):
            rows = {key: x[:, t] for key, x in window.rows.items()}
            state = world.filter_step(state, window.action[:, t], rows, noise[:, t])
            torch.testing.assert_close(state.deter, whole.deter[:, t], atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(state.stoch, whole.stoch[:, t], atol=1e-5, rtol=1e-4)
