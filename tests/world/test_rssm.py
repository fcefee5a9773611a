"""The recurrent state space: where it forgets, what it passes on, and that batches equal steps."""

from dataclasses import replace

import pytest
import torch

from reverie.config.dreamer import WorldConfig
from reverie.config.errors import UserError
from reverie.nn.layers import Layers
from reverie.world.rssm import RSSM, State
from reverie.world.scan import Scan

CONFIG = WorldConfig(deter=8, hidden=6, groups=3, classes=4, blocks=2, units=8)
KINDS = {
    "newest": CONFIG,
    "learned": replace(CONFIG, initial="learned", cell="norm", norm="layer"),
    "first": replace(CONFIG, latent="gaussian", cell="plain", norm="none", activation="elu", posterior_layers=2),
}
EMBED, ACTION, B, T = 5, 2, 3, 6


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rssm_of(config=CONFIG):
    torch.manual_seed(0)
    rssm = RSSM(config, EMBED, ACTION, Layers(config.norm, config.activation, config.init))
    with torch.no_grad():
        for parameter in rssm.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator(5)) * 0.2)
    return rssm


def window_of(rssm, seed=1):
    """A start, embeddings, actions and no beginnings."""
    g = generator(seed)
    start = State(torch.randn(B, 8, generator=g), torch.randn(B, rssm.latent.size, generator=g))
    return start, torch.randn(B, T, EMBED, generator=g), torch.randn(B, T, ACTION, generator=g), flags()


def flags(*places):
    first = torch.zeros(B, T, dtype=torch.bool)
    for b, t in places:
        first[b, t] = True
    return first


def with_noise(rssm, noise):
    """Draws use this noise (B, T, ...), handed out in the shapes that are asked for."""
    left = [noise]

    def give(shape, generator):
        taken = left[0][: shape[0], : shape[1]] if len(shape) == 2 else left[0][: shape[0], 0]
        left[0] = left[0][:, shape[1] if len(shape) == 2 else 1 :]
        return taken

    rssm.latent.noise = give


@pytest.mark.parametrize("kind", KINDS)
def test_states_and_actions_before_a_beginning_are_forgotten(kind):
    rssm = rssm_of(KINDS[kind])
    start, embed, action, _ = window_of(rssm)
    is_first = flags((0, 0), (1, 3), (2, 0), (2, 5))
    kept = [x.clone() for x in (*start, action, is_first)]
    found, _ = rssm.observe(start, embed, action, is_first, generator())
    for before, after in zip(kept, (*start, action, is_first)):
        assert torch.equal(before, after)  # nothing is changed in place

    other = State(start.deter + 9, start.stoch + 9)
    changed = torch.where(is_first.unsqueeze(-1), action + 3, action)
    again, _ = rssm.observe(other, embed, changed, is_first, generator())
    assert torch.equal(found.deter[[0, 2]], again.deter[[0, 2]])
    assert torch.equal(found.deter[1, 3:], again.deter[1, 3:])
    assert (found.deter[1, :3] != again.deter[1, :3]).any()


@pytest.mark.parametrize("kind", KINDS)
def test_actions_inside_an_episode_count(kind):
    rssm = rssm_of(KINDS[kind])
    start, embed, action, is_first = window_of(rssm)
    found, _ = rssm.observe(start, embed, action, is_first, generator())
    action[:, 2] += 0.5
    again, _ = rssm.observe(start, embed, action, is_first, generator())
    assert torch.equal(found.deter[:, :2], again.deter[:, :2])  # the action of row t leads to row t
    assert (found.deter[:, 2] != again.deter[:, 2]).any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_across_an_end_equals_two_windows(kind):
    rssm = rssm_of(KINDS[kind])
    start, embed, action, is_first = window_of(rssm)
    is_first[:, 4] = True
    noise = rssm.latent.noise((B, T), generator())
    with_noise(rssm, noise)
    whole, params = rssm.observe(start, embed, action, is_first, generator())
    parts = []
    for part, begin in ((slice(0, 4), start), (slice(4, T), State(start.deter * 0 + 7, start.stoch * 0 - 7))):
        with_noise(rssm, noise[:, part])
        parts.append(rssm.observe(begin, embed[:, part], action[:, part], is_first[:, part], generator()))
    for left, right in ((whole.deter, 0), (whole.stoch, 1)):
        torch.testing.assert_close(left, torch.cat([state[right] for state, _ in parts], 1))
    torch.testing.assert_close(params, torch.cat([each for _, each in parts], 1))


@pytest.mark.parametrize("kind", KINDS)
def test_observing_by_hand(kind):
    """One row after another: state and action into the cell, its result with the embedding into the posterior."""
    rssm = rssm_of(KINDS[kind])
    state, embed, action, is_first = window_of(rssm)
    noise = rssm.latent.noise((B, T), generator())
    with_noise(rssm, noise)
    found, params = rssm.observe(state, embed, action, is_first, generator())
    weight = torch.cat([rssm.deter_in.weight, rssm.embed_in.weight], 1)  # one layer over both
    for t in range(T):
        deter = rssm.cell(state.deter, state.stoch, rssm.cell.embed(action[:, t]))
        x = torch.cat([deter, embed[:, t]], -1) @ weight.T + rssm.deter_in.bias
        inferred = rssm.latent.params(rssm.posterior_out(rssm.posterior_net(x)))
        state = State(deter, rssm.latent.sample(inferred, noise[:, t]))
        torch.testing.assert_close(found.deter[:, t], state.deter, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found.stoch[:, t], state.stoch, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(params[:, t], inferred, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_priors_in_a_batch_equal_those_step_by_step(kind):
    rssm = rssm_of(KINDS[kind])
    start, embed, action, is_first = window_of(rssm)
    state, _ = rssm.observe(start, embed, action, is_first, generator())
    batch = rssm.prior(state.deter)
    for t in range(T):
        torch.testing.assert_close(batch[:, t], rssm.prior(state.deter[:, t]), atol=1e-6, rtol=1e-5)


def test_initial_states():
    zeros = rssm_of().initial(2)
    assert zeros.deter.shape == (2, 8) and zeros.deter.abs().max() == zeros.stoch.abs().max() == 0
    rssm = rssm_of(KINDS["learned"])
    learned = rssm.initial(2)
    torch.testing.assert_close(learned.deter, rssm.start.detach().tanh().expand(2, 8))
    classes = rssm.prior(learned.deter).argmax(-1)
    assert torch.equal(learned.stoch.reshape(2, 3, 4).argmax(-1), classes)
    assert (learned.stoch.reshape(2, 3, 4).sum(-1) - 1).abs().max() < 1e-6


def test_a_learned_start_is_learned_where_episodes_begin():
    rssm = rssm_of(KINDS["learned"])
    start, embed, action, is_first = window_of(rssm)
    state, _ = rssm.observe(start, embed, action, is_first, generator())
    (gradient,) = torch.autograd.grad(state.deter.sum(), rssm.start, allow_unused=True)
    assert gradient is None or gradient.abs().max() == 0
    state, _ = rssm.observe(start, embed, action, flags((1, 2)), generator())
    (gradient,) = torch.autograd.grad(state.deter[1, 2].sum(), rssm.start)
    assert gradient.abs().max() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_go_back_through_time_but_not_over_an_end(kind):
    rssm = rssm_of(KINDS[kind])
    start, embed, action, _ = window_of(rssm)
    for x in (*start, embed, action):
        x.requires_grad_()
    state, _ = rssm.observe(start, embed, action, flags((1, 3)), generator())
    state.feature[:, -1].sum().backward()
    for gradient in (embed.grad, action.grad):
        assert (gradient[[0, 2]].abs().sum(-1) > 0).all()
        assert (gradient[1, :3] == 0).all()
    assert (embed.grad[1, 3:].abs().sum(-1) > 0).all() and (action.grad[1, 3] == 0).all()
    assert (start.deter.grad[[0, 2]].abs().sum(-1) > 0).all() and (start.deter.grad[1] == 0).all()


def test_gradients_reach_the_past_through_draws_alone():
    """Straight through: the draw itself, not only the deterministic state, passes gradients on."""
    rssm = rssm_of()
    start, embed, action, is_first = window_of(rssm)
    embed.requires_grad_()
    state, _ = rssm.observe(start, embed, action, is_first, generator())
    (gradient,) = torch.autograd.grad(state.stoch[:, 0].square().sum(), embed, retain_graph=True)
    assert gradient[:, 0].abs().sum() > 0
    (gradient,) = torch.autograd.grad(state.deter[:, 1].sum(), embed)  # deter 1 depends on embed 0 by draw 0 alone
    assert (gradient[:, 0].abs().sum(-1) > 0).all() and gradient[:, 1:].abs().sum() == 0


def test_dreams_go_on_from_their_start_with_the_actions_chosen_there():
    rssm = rssm_of()
    start, *_ = window_of(rssm)
    seen = []

    def advance(state, draw, noise):
        seen.append(state)
        action = state.deter[:, :ACTION] * 0.5 + draw
        return rssm.step(state, action, noise), action

    draws, noise = torch.arange(4.0).reshape(4, 1, 1).expand(4, B, ACTION), rssm.latent.noise((4, B), generator(3))
    features, action = rssm.imagine(start, advance, draws, noise)
    state = State(*features.split([8, 12], -1))
    assert features.shape == (5, B, 20) and action.shape == (4, B, ACTION)
    assert torch.equal(state.deter[0], start.deter) and len(seen) == 4
    for t in range(4):
        assert torch.equal(seen[t].deter, state.deter[t])
        assert torch.equal(action[t], state.deter[t, :, :ACTION] * 0.5 + t)
        deter = rssm.cell(state.deter[t], state.stoch[t], rssm.cell.embed(action[t]))
        torch.testing.assert_close(state.deter[t + 1], deter)
        torch.testing.assert_close(state.stoch[t + 1], rssm.latent.sample(rssm.prior(deter), noise[t]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_is_not_finite_does_not_outlive_its_episode(kind):
    rssm = rssm_of(KINDS[kind])
    start, embed, action, _ = window_of(rssm)
    spoiled = State(start.deter * torch.nan, start.stoch * torch.inf)
    state, _ = rssm.observe(spoiled, embed, action, flags((0, 0), (1, 0), (2, 0)), generator())
    assert state.feature.isfinite().all()


def test_blocks_must_divide_the_state():
    with pytest.raises(UserError, match=r"--world\.blocks 3"):
        rssm_of(replace(CONFIG, blocks=3))


def everything(rssm, scan, half=False):
    """States, parameters of latents, and the gradients of weights and inputs for arbitrary gradients of the states."""
    start, embed, action, _ = window_of(rssm)
    is_first = flags((0, 0), (1, 3), (2, 5))
    embed.requires_grad_()
    action.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        rssm.scan = scan
        state, params = rssm.observe(start, embed, action, is_first, generator(3))
    goals = [torch.randn(x.shape, generator=generator(4)) for x in (*state, params)]
    rssm.zero_grad()
    torch.autograd.backward([*state, params], goals)
    slopes = {name: weight.grad for name, weight in rssm.named_parameters()}
    return (*state, params), slopes | {"embed": embed.grad, "action": action.grad}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compiling", [False, True])
def test_states_and_gradients_are_those_of_the_loop(kind, compiling):
    rssm = rssm_of(KINDS[kind])
    found, slopes = everything(rssm, Scan(rssm, "aot_eager" if compiling else None))
    expected, other = everything(rssm, type(rssm).scan.__get__(rssm))
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs)
    assert {name for name, slope in slopes.items() if slope is None} == {name for name in other if other[name] is None}
    reached = {f"rssm.{name}" for name, slope in other.items() if slope is not None}
    assert set(Scan(rssm).weights) <= reached  # others would be carried through every step for nothing
    for name, slope in other.items():
        if slope is not None:
            torch.testing.assert_close(slopes[name], slope, atol=1e-5, rtol=1e-4, msg=name)


def test_in_half_precision_the_gradients_point_the_same_way():
    rssm = rssm_of()
    _, slopes = everything(rssm, Scan(rssm), half=True)
    _, other = everything(rssm, type(rssm).scan.__get__(rssm))
    for name, slope in other.items():
        if slope is not None and slope.norm() > 0:
            assert torch.cosine_similarity(slopes[name].flatten(), slope.flatten(), 0) > 0.98, name
            assert slopes[name].dtype == torch.float32


def test_a_window_begins_at_its_start_and_no_gradient_goes_there():
    rssm = rssm_of()
    start, embed, action, is_first = window_of(rssm)
    rssm.scan = Scan(rssm)
    start = State(*(x.requires_grad_() for x in start))
    state, _ = rssm.observe(start, embed, action, is_first, generator(3))
    assert state.deter.shape == (B, T, 8) and action.shape == (B, T, ACTION)
    state.deter.sum().backward()
    assert start.deter.grad is None
