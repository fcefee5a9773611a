"""The filter as programs: the same states, parameters and gradients as the plain loop."""

from dataclasses import replace

import pytest
import torch

from reverie.config.dreamer import WorldConfig
from reverie.nn.layers import Layers
from reverie.nn.native.machine import Unfit
from reverie.world.native import NativeScan
from reverie.world.rssm import RSSM, State

BLOCKS = WorldConfig(deter=32, hidden=24, groups=3, classes=4, blocks=4, units=8)
KINDS = {
    "blocks": BLOCKS,
    "norm": replace(BLOCKS, cell="norm", norm="layer", posterior_layers=2, unimix=0.0),
    "biased": replace(BLOCKS, cell="norm", norm="none", gate_bias=True),
    "wide": replace(BLOCKS, deter=128, hidden=16, blocks=2),
    "odd": replace(BLOCKS, deter=33, hidden=19, blocks=3, groups=5, classes=3),
}
ACTION, EMBED, B, T = 2, 5, 11, 6

pytestmark = pytest.mark.usefixtures("c_compiler")


def rssm_of(config):
    torch.manual_seed(0)
    rssm = RSSM(config, EMBED, ACTION, Layers(config.norm, config.activation, config.init))
    with torch.no_grad():
        for parameter in rssm.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.2)
    return rssm


def results(rssm, scan, B=B, T=T):
    """States, parameters, and the gradients of embeddings and weights."""
    generator = torch.Generator().manual_seed(1)
    start = State(torch.randn(B, rssm.deter, generator=generator), torch.zeros(B, rssm.latent.size))
    first = torch.zeros(B, T, dtype=torch.bool)
    first[3, T // 3] = first[5, 0] = True
    embed = torch.randn(B, T, EMBED, generator=generator).requires_grad_()
    action = torch.randn(B, T, ACTION, generator=generator)
    rssm.zero_grad()
    noise = rssm.latent.noise((B, T), generator)
    state, params = scan(start, first, *rssm.shares(embed, action, first), noise)
    goals = [torch.randn(part.shape, generator=generator) for part in (*state, params)]
    torch.stack([(part * goal).sum() for part, goal in zip((*state, params), goals)]).sum().backward()
    found = {"deter": state.deter, "stoch": state.stoch, "params": params, "embed": embed.grad}
    return found | {name: each.grad.clone() for name, each in rssm.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_as_the_loop(kind):
    rssm = rssm_of(KINDS[kind])
    expected, found = results(rssm, rssm.scan), results(rssm, NativeScan(rssm))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_windows_of_one_step_with_many_rows():
    rssm = rssm_of(BLOCKS)
    expected, found = (results(rssm, scan, B=300, T=1) for scan in (rssm.scan, NativeScan(rssm)))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4, msg=name)


def test_a_state_that_is_not_finite_ends_with_its_episode():
    rssm = rssm_of(BLOCKS)
    start = State(torch.full((2, 32), torch.nan), torch.zeros(2, rssm.latent.size))
    first = torch.tensor([[True, False], [False, False]])
    embed, action = torch.zeros(2, 2, EMBED), torch.zeros(2, 2, ACTION)
    noise = rssm.latent.noise((2, 2), torch.Generator())
    state, _ = NativeScan(rssm)(start, first, *rssm.shares(embed, action, first), noise)
    assert state.deter.isfinite().all((1, 2)).tolist() == [True, False]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (replace(BLOCKS, initial="learned"), "learned"),
        (replace(BLOCKS, latent="gaussian"), "Gaussian"),
        (replace(BLOCKS, cell="plain"), "PlainCell"),
        (replace(BLOCKS, activation="elu"), "ELU"),
    ],
)
def test_models_without_programs(config, reason):
    with pytest.raises(Unfit, match=reason):
        NativeScan(rssm_of(config))
