"""The flat optimisers, against torch's own on separate parameters and against loops in numpy."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from reverie.config.dreamer import StepConfig
from reverie.nn.layers import Layers
from reverie.nn.optim import FlatAdam, Stepper, cut_apart


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
        norm, finite = flat.step(loss_of(ours, step), max_norm)
        assert finite
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


def stepped(config, gradients, start, finite=None):
    """Weights after each of several steps of two tensors of 2 and 3 numbers, with given gradients."""
    parameters = [nn.Parameter(torch.tensor(start[:2])), nn.Parameter(torch.tensor(start[2:]))]
    stepper = Stepper(parameters, config)
    found = []
    for i, gradient in enumerate(gradients):
        stepper.zero()
        parts = torch.tensor(gradient, dtype=torch.float32).split([2, 3])
        sum((p * g).sum() for p, g in zip(parameters, parts)).backward()
        norm = stepper.norm()
        stepper.step(norm, torch.isfinite(norm) if finite is None else torch.tensor(finite[i]))
        found.append(torch.cat([p.detach() for p in parameters]).double().numpy().copy())
    return np.stack(found), stepper


START = [0.5, -0.25, 3.0, 0.0, -4.0]
GRADIENTS = np.array([[0.1, -2.0, 0.3, 0.0, 5.0], [0.2, 0.1, -0.5, 1e-6, -1.0], [-3.0, 0.0, 0.2, 2e-6, 0.1]])


def cut_by_tensor(gradient, weight, share):
    """Each tensor's gradient at most that share of the tensor's own length, which counts as at least 0.001."""
    out = []
    for part in (slice(0, 2), slice(2, 5)):
        limit = share * max(1e-3, np.sqrt((weight[part] ** 2).sum()))
        length = np.sqrt((gradient[part] ** 2).sum())
        out.append(gradient[part] * min(1.0, limit / max(length, 1e-300)))
    return np.concatenate(out)


def test_laprop_with_gradients_cut_by_tensor():
    config = StepConfig(kind="laprop", lr=0.1, eps=1e-20, agc=0.3, clip=0.0, decay=0.0, warmup=0)
    weight, square, mean, expected = np.array(START), np.zeros(5), np.zeros(5), []
    for t, gradient in enumerate(GRADIENTS, 1):
        gradient = cut_by_tensor(gradient, weight, 0.3)
        square = 0.999 * square + 0.001 * gradient**2
        scaled = gradient / (np.sqrt(square / (1 - 0.999**t)) + 1e-20)
        mean = 0.9 * mean + 0.1 * scaled  # momentum of the scaled gradient, without the learning rate in it
        weight = weight - 0.1 * mean / (1 - 0.9**t)
        expected.append(weight)
    found, _ = stepped(config, GRADIENTS, START)
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-4, atol=1e-6)
    assert abs(found[0] - START).max() < 0.1001  # the first step is the learning rate, whatever the gradient


def test_parts_of_a_layer_are_cut_as_one_and_layers_in_one_tensor_apart():
    config = StepConfig(kind="adam", lr=1.0, eps=1.0, agc=0.3, clip=0.0, decay=0.0, warmup=0)
    torch.manual_seed(0)
    made = Layers()
    one, two = made.shares((3, 5), 4)
    last = made.linear(4, 6, 0.01)
    cut_apart(last, [2, 4])
    layers = nn.ModuleList([one, nn.Linear(2, 2), two, last])
    stepper = Stepper(layers.parameters(), config)
    before = {name: each.detach().clone() for name, each in layers.named_parameters()}
    gradients = {name: torch.randn_like(each) * 10.0 ** torch.randint(-3, 2, ()) for name, each in before.items()}
    gradients["3.weight"][2:] *= 100
    for name, parameter in layers.named_parameters():
        parameter.grad = gradients[name].clone()
    norm = stepper.norm()
    stepper.step(norm, norm.isfinite())
    together = moved(*(torch.cat([each["0.weight"], each["2.weight"]], 1) for each in (before, gradients)))
    expected = {name: moved(value, gradients[name]) for name, value in before.items() if not name.startswith("3.")}
    expected |= {"0.weight": together[:, :3], "2.weight": together[:, 3:]}
    for name in ("3.weight", "3.bias"):
        parts = [moved(before[name][rows], gradients[name][rows]) for rows in (slice(2), slice(2, 6))]
        expected[name] = torch.cat(parts)
    for name, parameter in layers.named_parameters():
        torch.testing.assert_close(parameter.data, expected[name], msg=name)


def moved(weight, gradient):
    """A weight after the first step of Adam with epsilon and rate 1, its gradient cut to 0.3 of the weight's length."""
    gradient = gradient * min(1.0, 0.3 * max(1e-3, weight.norm().item()) / gradient.norm().item())
    return weight - gradient / (gradient.abs() + 1)


def test_short_tensors_count_as_a_thousandth_long():
    config = StepConfig(kind="adam", lr=1.0, eps=1.0, agc=0.3, clip=0.0, decay=0.0, warmup=0)
    found, _ = stepped(config, GRADIENTS[:1], [0.0] * 5)
    gradient = np.concatenate([g / np.sqrt((g**2).sum()) * 3e-4 for g in (GRADIENTS[0, :2], GRADIENTS[0, 2:])])
    np.testing.assert_allclose(found[0], -gradient / (np.abs(gradient) + 1), rtol=1e-4)


def test_adam_with_global_clip_and_decoupled_decay():
    config = StepConfig(kind="adam", lr=0.01, eps=1e-5, agc=0.0, clip=1.5, decay=1e-2, warmup=0)
    weight, square, mean, expected = np.array(START), np.zeros(5), np.zeros(5), []
    for t, gradient in enumerate(GRADIENTS, 1):
        gradient = gradient * min(1.0, 1.5 / np.sqrt((gradient**2).sum()))
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weight = weight * (1 - 1e-2)  # a share of the weights, not times the learning rate, not in the gradient
        weight = weight - 0.01 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-5)
        expected.append(weight)
    found, _ = stepped(config, GRADIENTS, START)
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-4, atol=1e-6)


def test_the_learning_rate_rises_over_the_warm_up():
    plain = StepConfig(kind="laprop", lr=0.1, agc=0.0, warmup=0)
    whole, _ = stepped(plain, GRADIENTS, START)
    slow, _ = stepped(replace(plain, warmup=4), GRADIENTS, START)
    moved = [np.diff(np.vstack([START, found]), axis=0) for found in (whole, slow)]
    for t in range(3):
        np.testing.assert_allclose(moved[1][t], moved[0][t] * (t + 1) / 4, rtol=1e-4, atol=1e-6)
    late, _ = stepped(replace(plain, warmup=2), np.tile(GRADIENTS[:1], (4, 1)), START)
    steps = np.abs(np.diff(late, axis=0))
    np.testing.assert_allclose(steps[1:, 0], 0.1, rtol=1e-3)


def test_a_share_of_the_learning_rate_is_left_and_momentum_stays_whole():
    config = StepConfig(kind="laprop", lr=0.1, agc=0.0, warmup=0)
    parameter = nn.Parameter(torch.zeros(1))
    stepper, places = Stepper([parameter], config), [0.0]
    for share in (1.0, 1.0, 0.25):
        stepper.zero()
        parameter.sum().backward()
        stepper.share = share
        stepper.step(stepper.norm(), torch.tensor(True))
        places.append(parameter.item())
    # a gradient that stays the same moves by the whole rate each time, at once by less where less is left
    np.testing.assert_allclose(np.diff(places), [-0.1, -0.1, -0.025], rtol=1e-4)


@pytest.mark.parametrize("kind", ["laprop", "adam"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_that_is_not_finite_changes_nothing(kind, bad):
    config = StepConfig(kind=kind, lr=0.1, eps=1e-8, agc=0.3, clip=100.0, decay=1e-2, warmup=10)
    spoiled = GRADIENTS.copy()
    spoiled[1, 3] = bad
    found, stepper = stepped(config, spoiled, START)
    skipped, other = stepped(config, GRADIENTS[[0, 2]], START)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], skipped[1])
    for name, value in stepper.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_one_optimiser_stops_for_the_failure_of_another():
    found, stepper = stepped(StepConfig(), GRADIENTS, START, finite=[True, False, True])
    np.testing.assert_array_equal(found[1], found[0])
    assert stepper.count == 2


@pytest.mark.parametrize("rate", [1e-2, torch.tensor(1e-2)], ids=["number", "tensor"])
@pytest.mark.parametrize("spoil", [lambda x: x * torch.nan, lambda x: x + torch.inf], ids=["gradient", "loss"])
def test_flat_adam_leaves_out_what_is_not_finite(spoil, rate):
    ours, theirs = networks()
    one, other = (FlatAdam(net.parameters(), rate, 1e-5) for net in (ours, theirs))
    for step in range(3):
        assert one.step(loss_of(ours, step), 1.0)[1] and other.step(loss_of(theirs, step), 1.0)[1]
        before = [one.flat.clone(), *(value.clone() for value in (one.mean, one.square, one.count))]
        _, finite = one.step(spoil(loss_of(ours, step)), 1.0)
        assert not finite
        assert all(torch.equal(left, right) for left, right in zip(before, (one.flat, one.mean, one.square, one.count)))
    assert torch.equal(one.flat, other.flat)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_of_a_network_with_its_optimiser_learns_by_itself(copied):
    net, _ = networks()
    flat = FlatAdam(net.parameters(), 1e-2, 1e-5)
    flat.step(loss_of(net, 0), 1.0)
    before = flat.flat.clone()
    other, optimizer = copied((net, flat))
    optimizer.step(loss_of(other, 1), 1.0)
    assert torch.equal(flat.flat, before)
    flat.step(loss_of(net, 1), 1.0)
    for mine, theirs in zip(net.parameters(), other.parameters()):
        assert torch.equal(mine, theirs)
