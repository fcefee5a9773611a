"""The kernels' phases in PyTorch, in float32, find what `RSSM.scan` and autograd find."""

import pytest
import torch

from emulation.phases import Phases, weights_of
from emulation.windows import CONFIGS, goals_of, rssm_of, window_of
from reverie.world.kernel.shape import shape_of
from reverie.world.rssm import State


def totals_by_autograd(rssm, window, goals):
    """Gradients of all states: a state that is used later is a sum of itself and a zero whose gradient is its total."""
    state, zeros, found = window.start, [], []
    for inputs in zip(*window.turned()):
        state, params = rssm.filter(state, *inputs)
        zero = State(*(torch.zeros_like(x, requires_grad=True) for x in state))
        state = State(*(x + y for x, y in zip(state, zero)))
        zeros += zero
        found.append((*state, params))
    grads = torch.autograd.grad([torch.stack(parts) for parts in zip(*found)], zeros, goals)
    return State(torch.stack(grads[::2]), torch.stack(grads[1::2]))


@pytest.mark.parametrize(("size", "batch", "steps"), [("tiny", 3, 9), ("odd", 16, 6), ("1m", 16, 4)])
def test_phases_are_the_filter_and_its_gradients(size, batch, steps):
    rssm = rssm_of(CONFIGS[size])
    window, goals = window_of(rssm, steps, batch), goals_of(rssm, steps, batch)
    phases = Phases(shape_of(rssm), weights_of(rssm))
    found = phases.forward(window.start, *window.turned())
    state, params = rssm.scan(*window)
    for name, expected in (("deter", state.deter), ("stoch", state.stoch), ("params", params)):
        torch.testing.assert_close(found[name], expected.detach().transpose(0, 1), rtol=1e-4, atol=1e-4)
    totals, expected = (
        phases.reverse(found, window.start, window.turned()[0], goals),
        totals_by_autograd(rssm, window, goals),
    )
    for ours, theirs, goal in zip(totals, expected, goals):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        assert (ours - goal)[:-1].abs().mean() > 0.01  # later steps add something
