"""Products in bfloat16: those of rounded numbers, added up in float32, by tiles and row by row."""

from pathlib import Path

import pytest
import torch
from torch import nn

from reverie.nn.heads import NumberHead
from reverie.nn.layers import BlockLinear, Layers
from reverie.nn.native import machine as compiled
from reverie.nn.native.layered import Layered
from reverie.nn.native.machine import machine
from reverie.nn.native.program import Program
from reverie.nn.outputs import TwoHot

NEEDS = {"tiles": "amx_bf16", "rows": "avx512_bf16"}

pytestmark = pytest.mark.usefixtures("c_compiler")


@pytest.fixture(autouse=True, params=NEEDS)
def form(request, monkeypatch):
    """Each way that there is to take such products; without tiles a processor that has them goes row by row."""
    if NEEDS[request.param] not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"this processor has no {NEEDS[request.param]}")
    if request.param == "rows":
        monkeypatch.setattr(compiled, "FLAGS", f"{compiled.FLAGS} -mno-amx-bf16")
    machine.cache_clear()
    assert (machine().halves() == 2) == (request.param == "tiles")
    yield
    machine.cache_clear()


def rounded(x):
    return x.detach().bfloat16().double()


def assert_near(found, expected):
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 48, 100])
@pytest.mark.parametrize("sizes", [(32, 32), (64, 96), (160, 64)])
def test_layers_multiply_rounded_numbers(rows, sizes):
    torch.manual_seed(0)
    layer, x, y = nn.Linear(*sizes), 3 * torch.randn(rows, sizes[0]), torch.full((rows, sizes[1]), torch.nan)
    program = Program(half=True)
    program.store("y", program.linear([(program.load("x", sizes[0]), sizes[0])], layer), sizes[1])
    program.finish()
    program.run({"x": x, "y": y}, rows)
    assert_near(y, rounded(x) @ rounded(layer.weight).T + layer.bias.double())


@pytest.mark.parametrize("rows", [7, 50])
def test_inputs_that_lie_apart_are_added_to_what_is_there(rows):
    torch.manual_seed(0)
    layer, given, x, z = nn.Linear(96, 64), torch.randn(rows, 64), torch.randn(rows, 32), torch.randn(rows, 64)
    y, program = torch.empty(rows, 64), Program(half=True)
    into = program.load("given", 64)
    program.linear([(program.load("x", 32), 32), (program.load("z", 64), 64)], layer, into=into)
    program.store("y", into, 64)
    program.finish()
    program.run({"given": given, "x": x, "z": z, "y": y}, rows)
    both = rounded(torch.cat([x, z], 1))
    assert_near(y, given.double() + both @ rounded(layer.weight).T + layer.bias.double())


@pytest.mark.parametrize("rows", [7, 50])
def test_blocks(rows):
    torch.manual_seed(0)
    layer, x, y = BlockLinear(4, 32, 96), torch.randn(rows, 128), torch.empty(rows, 384)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    program = Program(half=True)
    column = program.columns(384)
    program.block_linear(program.load("x", 128), column, layer)
    program.store("y", column, 384)
    program.finish()
    program.run({"x": x, "y": y}, rows)
    expected = torch.einsum("bgk,gkn->bgn", rounded(x).unflatten(1, (4, 32)), rounded(layer.weight))
    assert_near(y, (expected + layer.bias.detach().double()).flatten(1))


@pytest.mark.parametrize("rows", [65, 91, 96, 1000])  # more than 16 of them always go together
def test_gradients_multiply_rounded_numbers(rows, threads):
    torch.manual_seed(0)
    layer, by = nn.Linear(96, 64), torch.randn(rows, 64)
    layers, x = nn.Sequential(layer), torch.randn(rows, 96, requires_grad=True)
    (Layered(layers, layers, half=True)(x) * by).sum().backward()
    assert_near(x.grad, rounded(by) @ rounded(layer.weight))
    assert_near(layer.bias.grad, by.double().sum(0))
    torch.testing.assert_close(layer.weight.grad.double(), rounded(by).T @ rounded(x), rtol=1e-4, atol=1e-3)


def test_gradients_of_few_rows_are_not_rounded():
    torch.manual_seed(0)
    layer, x, by = nn.Linear(96, 64), torch.randn(64, 96), torch.randn(64, 64)
    layered = Layered(nn.Sequential(), layer, half=True)
    found = layered.reverse((False, True)).learn({"x": x[:16], "by_y": by[:16]}, 16)
    assert_near(found[0], by[:16].double().T @ x[:16].double())


def test_layers_of_other_widths_are_not_rounded():
    torch.manual_seed(0)
    layer, x = nn.Linear(96, 33), torch.randn(100, 96)
    layers = nn.Sequential(layer)
    assert_near(Layered(layers, layers, half=True)(x), x.double() @ layer.weight.detach().double().T + layer.bias)


def test_the_last_layer_of_a_head_is_not_rounded():
    torch.manual_seed(0)
    head, x = NumberHead(Layers(), 96, 64, 0, TwoHot()), torch.randn(100, 96, requires_grad=True)
    expected = torch.autograd.grad(head(x).square().sum(), [x, head.linear.weight])
    head.forward = Layered(head, head.body, head.linear, half=True)
    found = torch.autograd.grad(head(x).square().sum(), [x, head.linear.weight])
    for each, other in zip(found, expected):
        torch.testing.assert_close(each, other, rtol=1e-4, atol=1e-4)


def test_what_is_not_finite_stays_so():
    layer, x = nn.Linear(32, 32), torch.ones(40, 32)
    x[3, 5], x[7, 1] = torch.nan, torch.inf
    layers = nn.Sequential(layer)
    y = Layered(layers, layers, half=True)(x.repeat(2, 1))
    assert y[3].isnan().all() and not y[7].isfinite().any() and y[8:43].isfinite().all()
