"""Steps of an optimiser in C: the same as `Stepper.step`."""

import copy

import pytest
import torch
from torch import nn

from reverie.config.dreamer import StepConfig
from reverie.nn.layers import Layers
from reverie.nn.native.descent import NativeStep
from reverie.nn.optim import Stepper, cut_apart

pytestmark = pytest.mark.usefixtures("c_compiler")
KINDS = {
    "laprop": StepConfig(lr=1e-2, warmup=3),
    "adam": StepConfig(kind="adam", lr=1e-2, eps=1e-5, clip=1.0, agc=0.0, decay=1e-2, warmup=0),
    "both": StepConfig(lr=1e-2, clip=0.5, agc=0.1, warmup=2),
}


def stepper_of(config):
    torch.manual_seed(0)
    shapes = ((300, 2), (7,), (1, 1), (5, 3, 40))
    plain = [nn.Parameter(torch.randn(shape) * (0.0 if shape == (7,) else 1.0)) for shape in shapes]
    shares, last = Layers().shares((3, 50), 11), nn.Linear(11, 9)
    cut_apart(last, [2, 3, 4])
    return Stepper([*shares[0].parameters(), *plain, *shares[1].parameters(), *last.parameters()], config)


def stepped(stepper, count, spoilt=()):
    generator = torch.Generator().manual_seed(1)
    for number in range(count):
        for parameter in stepper.parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator) * 10 ** (number % 3 - 1)
        if number in spoilt:
            stepper.parameters[0].grad[0] = torch.inf
        norm = stepper.norm()
        stepper.step(norm, norm.isfinite())
    return {name: getattr(stepper, name) for name in ("flat", "mean", "square", "count")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_steps(kind):
    plain, native = stepper_of(KINDS[kind]), stepper_of(KINDS[kind])
    native.step = NativeStep(native)
    for stepper in (plain, native):
        stepper.share.fill_(0.7)
    expected, found = stepped(plain, 6, spoilt=(2,)), stepped(native, 6, spoilt=(2,))
    assert found["count"] == 5
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, msg=name)


def test_copies_step_by_themselves():
    stepper = stepper_of(KINDS["laprop"])
    stepper.step = NativeStep(stepper)
    other = copy.deepcopy(stepper)
    before = stepper.flat.clone()
    stepped(other, 2)
    assert stepper.flat.equal(before) and not other.flat.equal(before)
