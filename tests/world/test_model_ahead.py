"""Losses of the previous observation and of predictions ahead, which must stop at the ends of episodes."""

from dataclasses import replace

import numpy as np
import torch
from gymnasium import spaces

from reverie.config.dreamer import WorldConfig
from reverie.world.model import Window, WorldModel
from reverie.world.rssm import State

SPACE = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
CONFIG = WorldConfig(deter=8, hidden=6, groups=2, classes=3, blocks=2, units=7, layers=1, bins=15, symlog=False)
B, T = 2, 5


def world_of(**options):
    torch.manual_seed(0)
    return WorldModel(SPACE, 2, replace(CONFIG, **options), 0.9)


def window_of():
    """A window whose second half is another episode in its first row."""
    g = torch.Generator().manual_seed(1)
    flags = {key: torch.zeros(B, T, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    flags["is_last"][0, 2] = flags["is_first"][0, 3] = True
    rows = {"vector": torch.randn(B, T, 3, generator=g), "reward": torch.randn(B, T, generator=g), **flags}
    start = State(torch.randn(B, 8, generator=g), torch.randn(B, 6, generator=g))
    return Window(rows, start, torch.randn(B, T, 2, generator=g), flags["is_first"])


def test_the_previous_observation_is_the_one_before_in_the_same_episode():
    world, window = world_of(previous_scale=2.0, recon_scale=0.5), window_of()
    state, losses, _ = world.losses(window, torch.Generator().manual_seed(0))
    guess = world.previous(state)["vector"]
    found = losses["previous/vector"]
    assert found.shape == (B, T - 1)
    for b in range(B):
        for t in range(1, T):
            error = (guess[b, t] - window.rows["vector"][b, t - 1]).square().sum() * 0.5 * 2.0
            expected = 0.0 if (b, t) == (0, 3) else error.item()
            torch.testing.assert_close(found[b, t - 1].item(), expected, rtol=1e-4, atol=1e-6)
    assert not any(name.startswith("previous") for name in world_of().losses(window, torch.Generator())[1])


def test_the_previous_observation_teaches_states_if_the_decoder_may():
    for heads, taught in ((("decoder", "reward"), True), (("reward",), False)):
        world = world_of(previous_scale=2.0, grad_heads=heads)
        state, losses, _ = world.losses(window_of(), torch.Generator().manual_seed(0))
        (found,) = torch.autograd.grad(losses["previous/vector"].sum(), state.deter, allow_unused=True)
        assert (found is not None) == taught


def test_predictions_ahead_by_hand():
    """Two steps ahead with the actions taken; what lies behind an episode's end does not count."""
    world, window = world_of(overshoot=2, overshoot_scale=3.0, recon_scale=1.0), window_of()
    latent = world.rssm.latent
    latent.noise = lambda shape, generator: torch.full((*shape, 2, 1), 0.3)
    state, losses, _ = world.losses(window, torch.Generator())
    total = torch.zeros(B, T - 2)
    for b in range(B):
        for t in range(T - 2):
            dreamt = State(state.deter[b, t][None], state.stoch[b, t][None])
            for k in (1, 2):
                dreamt = world.rssm.step(dreamt, window.action[b, t + k][None], torch.full((1, 2, 1), 0.3))
                if b == 0 and t < 3 <= t + k:
                    break
                guess = world.decoder(dreamt)["vector"][0]
                total[b, t] += (guess - window.rows["vector"][b, t + k]).square().sum().item()
    torch.testing.assert_close(losses["ahead/vector"].detach(), total * 3.0 / 2, rtol=1e-4, atol=1e-5)
    assert {"ahead/vector", "ahead/reward", "ahead/cont"} <= losses.keys()


def test_predictions_ahead_teach_the_prior_through_time():
    world, window = world_of(overshoot=2), window_of()
    _, losses, _ = world.losses(window, torch.Generator().manual_seed(0))
    losses["ahead/vector"].sum().backward()
    assert world.rssm.prior_out.weight.grad.abs().sum() > 0
    assert world.rssm.posterior_out.weight.grad.abs().sum() > 0


def test_windows_too_short_to_look_ahead_are_left_alone():
    _, losses, _ = world_of(overshoot=T).losses(window_of(), torch.Generator().manual_seed(0))
    assert not any(name.startswith("ahead") for name in losses)
