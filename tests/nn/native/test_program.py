"""Programs of layers: the same numbers as torch, for any number of rows and threads."""

import pytest
import torch
from torch import nn

from reverie.nn.layers import Layers
from reverie.nn.native import machine as compiled
from reverie.nn.native.machine import Unfit, machine
from reverie.nn.native.program import Kind, Program

pytestmark = pytest.mark.usefixtures("c_compiler")


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def made(layers, inputs):
    program = Program()
    column, size = program.dense([(program.load("x", inputs), inputs)], layers)
    program.store("y", column, size)
    program.finish()
    return program


@pytest.mark.parametrize("norm", ["rms", "layer", "none"])
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_dense_layers(norm, rows):
    torch.manual_seed(0)
    layers = nn.Sequential(Layers(norm).mlp(9, 24, 2), nn.Linear(24, 5)).requires_grad_(False)
    for parameter in layers.parameters():
        parameter += 0.3 * torch.randn(parameter.shape)
    x, y = 4 * torch.randn(rows, 9), torch.full((rows, 5), torch.nan)
    made(layers, 9).run({"x": x, "y": y}, rows)
    torch.testing.assert_close(y, layers(x), rtol=1e-5, atol=1e-5)


def test_weights_are_those_of_the_moment_and_must_not_move():
    layers = nn.Sequential(nn.Linear(3, 2)).requires_grad_(False)
    program, x, y = made(layers, 3), torch.ones(4, 3), torch.empty(4, 2)
    layers[0].weight.fill_(1.0)
    layers[0].bias.fill_(0.5)
    program.run({"x": x, "y": y}, 4)
    assert y.tolist() == [[3.5, 3.5]] * 4
    layers[0].weight.data = torch.zeros(2, 3)
    with pytest.raises(RuntimeError, match="moved"):
        program.run({"x": x, "y": y}, 4)


def test_what_is_given_must_fit():
    program, x = made(nn.Sequential(nn.Linear(3, 2)), 3), torch.ones(4, 3)
    with pytest.raises(ValueError, match="takes x, y"):
        program.run({"x": x}, 4)
    for wrong in (torch.empty(3, 2), torch.empty(4, 3), torch.empty(4, 2).double(), torch.empty(2, 4).T):
        with pytest.raises(ValueError, match="y is"):
            program.run({"x": x, "y": wrong}, 4)


def test_what_is_not_finite_is_passed_on():
    layers = nn.Sequential(Layers("rms").mlp(4, 16, 1)).requires_grad_(False)
    x, y = torch.randn(3, 4), torch.empty(3, 16)
    x[1] = torch.nan
    made(layers, 4).run({"x": x, "y": y}, 3)
    assert y.isfinite().all(1).tolist() == [True, False, True]


@pytest.mark.parametrize("unimix", [0.0, 0.01])
def test_classes_and_draws(unimix):
    torch.manual_seed(0)
    rows, groups, classes = 2000, 3, 5
    logits, noise = 3 * torch.randn(rows, groups, classes), torch.rand(rows, groups)
    program, found = Program(), torch.empty(rows, groups * classes)
    drawn, logp = torch.empty_like(found), torch.empty_like(found)
    a, b, c, d = (program.columns(groups * classes) for _ in range(4))
    program.load("logits", groups * classes, a)
    uniform = program.load("noise", groups)
    program.add(Kind.CLASSES, a=a, b=b, c=c, k=classes, groups=groups, low=unimix)
    program.add(Kind.DRAW, a=c, b=uniform, c=d, k=classes, groups=groups)
    program.store("logp", b, groups * classes)
    program.store("drawn", d, groups * classes)
    program.finish()
    program.run({"logits": logits.flatten(1), "noise": noise, "logp": logp, "drawn": drawn}, rows)
    prob = (1 - unimix) * logits.softmax(-1) + unimix / classes
    torch.testing.assert_close(logp.view_as(prob), prob.log(), rtol=1e-5, atol=1e-5)
    chosen = (prob.cumsum(-1) < noise.unsqueeze(-1)).sum(-1)
    assert drawn.view_as(prob).sum(-1).eq(1).all()
    assert drawn.view_as(prob).argmax(-1).eq(chosen).float().mean() > 0.999


def test_no_compiler_and_one_that_fails(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(Unfit, match="no-such-compiler"):
        machine.__wrapped__()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(Unfit, match="false failed"):
        machine.__wrapped__()
    monkeypatch.delenv("CC")
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    with pytest.raises(Unfit, match="no C compiler"):
        machine.__wrapped__()


def test_what_has_no_program():
    with pytest.raises(Unfit, match="ELU"):
        made(nn.Sequential(nn.Linear(2, 2), nn.ELU()), 2)
    with pytest.raises(Unfit, match="float32"):
        made(nn.Sequential(nn.Linear(2, 2).double()), 2)
    with pytest.raises(Unfit, match="do not fit"):
        made(nn.Sequential(nn.Linear(2000, 2000)), 2000)
