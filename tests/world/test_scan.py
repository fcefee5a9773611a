"""The filter as one operation: the same states and gradients as the loop."""

from dataclasses import replace

import pytest
import torch

from reverie.config.dreamer import WorldConfig
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


def window_of(rssm):
    """A start, embeddings, actions, and beginnings at the head and inside of windows."""
    g = generator(1)
    start = State(torch.randn(B, 8, generator=g), torch.randn(B, rssm.latent.size, generator=g))
    is_first = torch.zeros(B, T, dtype=torch.bool)
    is_first[0, 0] = is_first[1, 3] = is_first[2, 5] = True
    return start, torch.randn(B, T, EMBED, generator=g), torch.randn(B, T, ACTION, generator=g), is_first


def everything(rssm, scan, half=False):
    """States, parameters of latents, and the gradients of weights and inputs for arbitrary gradients of the states."""
    start, embed, action, is_first = window_of(rssm)
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
