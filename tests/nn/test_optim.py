"""The flat optimiser, against torch's own on separate parameters."""

import copy

import torch
from torch import nn

from reverie.nn.optim import FlatAdam


def networks():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), nn.Flatten(), nn.Linear(4 * 36, 5))
    return ours, copy.deepcopy(ours)


def loss_of(net, step):
    x = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(step)).contiguous(
        memory_format=torch.channels_last
    )
    return net(x).square().mean() * 10


def test_equals_adam_with_clipped_gradients():
    ours, theirs = networks()
    flat = FlatAdam(ours.parameters(), 1e-2, 1e-5)
    adam = torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-5)
    for step in range(5):
        max_norm = 0.5 if step % 2 else 100.0
        norm = flat.step(loss_of(ours, step), max_norm)
        adam.zero_grad()
        loss_of(theirs, step).backward()
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), max_norm)
        adam.step()
        torch.testing.assert_close(norm, expected)
        flat.lr = adam.param_groups[0]["lr"] = 1e-2 / (step + 1)
    for mine, other in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(mine, other)
        assert mine.stride() == other.stride()


def test_saved_and_restored_it_goes_on_the_same():
    ours, other = networks()
    flat = FlatAdam(ours.parameters(), 1e-2, 1e-5)
    flat.step(loss_of(ours, 0), 1.0)
    again = FlatAdam(other.parameters(), 5.0, 1e-5)
    other.load_state_dict(ours.state_dict())
    again.load_state_dict(copy.deepcopy(flat.state_dict()))
    for net, optimizer in ((ours, flat), (other, again)):
        optimizer.step(loss_of(net, 1), 1.0)
    assert torch.equal(flat.flat, again.flat)
