"""Freezing parameters while a graph is built through them."""

import pytest
import torch
from torch import nn

from reverie.nn.frozen import frozen


def test_gradients_pass_through_but_stay_out():
    net, other = nn.Linear(3, 2), nn.Linear(3, 2)
    x = torch.ones(1, 3, requires_grad=True)
    with frozen(net):
        loss = (net(x) + other(x)).sum()
    loss.backward()
    torch.testing.assert_close(x.grad, net.weight.sum(0, keepdim=True) + other.weight.sum(0, keepdim=True))
    assert net.weight.grad is None and other.weight.grad is not None


def test_graphs_built_before_and_after_keep_their_gradients():
    net = nn.Linear(3, 2)
    before = net(torch.ones(1, 3)).sum()
    with frozen(net):
        inside = net(torch.ones(1, 3) * 100).sum()
    after = net(torch.ones(1, 3) * 10).sum()
    assert not inside.requires_grad
    (before + after).backward()
    torch.testing.assert_close(net.weight.grad, torch.full((2, 3), 11.0))


def test_what_was_still_before_stays_still_and_an_error_thaws():
    net = nn.Linear(3, 2)
    net.bias.requires_grad_(False)
    with pytest.raises(ZeroDivisionError), frozen(net):
        raise ZeroDivisionError
    assert net.weight.requires_grad and not net.bias.requires_grad
