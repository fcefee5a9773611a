"""Recurrent cells, each against a loop over scalars."""

import math

import pytest
import torch

from reverie.nn.gru import BlockCell, NormCell, PlainCell, limited
from reverie.nn.layers import Layers

DETER, STOCH, ACTION, HIDDEN = 6, 4, 3, 5


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rms(x, weight):
    root = math.sqrt(sum(each * each for each in x) / len(x) + 1e-4)
    return [each / root * scale for each, scale in zip(x, weight)]


def layer_norm(x, weight, bias):
    mean = sum(x) / len(x)
    root = math.sqrt(sum((each - mean) ** 2 for each in x) / len(x) + 1e-3)
    return [(each - mean) / root * w + b for each, w, b in zip(x, weight, bias)]


def affine(x, weight, bias=None):
    """weight (outputs, inputs) times x."""
    bias = bias or [0.0] * len(weight)
    return [sum(w * each for w, each in zip(row, x)) + b for row, b in zip(weight, bias)]


def shaken(cell):
    """The cell with all weights, scales and biases away from where they start."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return cell


def inputs_of():
    generator = torch.Generator().manual_seed(3)
    sizes = (DETER, STOCH, ACTION)
    deter, stoch, action = (torch.randn(2, size, generator=generator) for size in sizes)
    return deter, stoch, action * 2


def weights(module):
    return {name: value.tolist() for name, value in module.state_dict().items()}


def clipped(action):
    return [each / max(1.0, abs(each)) for each in action]


def assert_same(cell, expected):
    deter, stoch, action = inputs_of()
    out = cell(deter, stoch, cell.embed(action))
    rows = [expected(*(x[i].tolist() for x in (deter, stoch, action))) for i in range(2)]
    torch.testing.assert_close(out.detach(), torch.tensor(rows), atol=2e-5, rtol=2e-5)


def test_block_cell_splits_gates_inside_each_block():
    cell = shaken(BlockCell(Layers(), DETER, STOCH, ACTION, HIDDEN, blocks=2))
    w, width = weights(cell), DETER // 2

    def dense(name, x):
        return [silu(v) for v in rms(affine(x, w[f"{name}.0.weight"], w[f"{name}.0.bias"]), w[f"{name}.1.weight"])]

    def block(name, g, x):
        columns = list(zip(*w[f"{name}.weight"][g]))
        return affine(x, columns, w[f"{name}.bias"][g])

    def expected(deter, stoch, action):
        shared = dense("deter_in", deter) + dense("stoch_in", stoch) + dense("action_in", clipped(action))
        parts = [deter[:width], deter[width:]]
        mixed = block("mix", 0, parts[0] + shared) + block("mix", 1, parts[1] + shared)
        mixed = [silu(v) for v in rms(mixed, w["tail.0.weight"])]  # over both blocks together
        out = []
        for g in range(2):
            gates = block("gates", g, mixed[g * width : (g + 1) * width])
            for i in range(width):
                reset, candidate, update = gates[i], gates[width + i], gates[2 * width + i]
                keep = 1 - sigmoid(update - 1)
                out.append(keep * parts[g][i] + (1 - keep) * math.tanh(sigmoid(reset) * candidate))
        return out

    assert_same(cell, expected)


@pytest.mark.parametrize("biased", [False, True])
def test_norm_cell_normalises_all_gates_together_and_resets_late(biased):
    cell = shaken(NormCell(Layers("none", "elu"), DETER, STOCH, ACTION, HIDDEN, biased))
    w = weights(cell)
    assert ("gates.bias" in w) == biased

    def expected(deter, stoch, action):
        x = [
            a + b
            for a, b in zip(
                affine(stoch, w["stoch_in.weight"], w["stoch_in.bias"]), affine(clipped(action), w["action_in.weight"])
            )
        ]
        x = [v if v > 0 else math.expm1(v) for v in x]
        gates = layer_norm(affine(deter + x, w["gates.weight"], w.get("gates.bias")), w["norm.weight"], w["norm.bias"])
        reset, candidate, update = (gates[k * DETER : (k + 1) * DETER] for k in range(3))
        out = []
        for i in range(DETER):
            u = sigmoid(update[i] - 1)
            out.append(u * math.tanh(sigmoid(reset[i]) * candidate[i]) + (1 - u) * deter[i])
        return out

    assert_same(cell, expected)


def test_plain_cell_is_the_usual_gru():
    cell = shaken(PlainCell(Layers("none", "elu"), DETER, STOCH, ACTION, HIDDEN))
    w = weights(cell)

    def expected(deter, stoch, action):
        left = affine(stoch, w["stoch_in.weight"], w["stoch_in.bias"])
        right = affine(clipped(action), w["action_in.weight"])
        x = [v if v > 0 else math.expm1(v) for v in (a + b for a, b in zip(left, right))]
        ours = affine(x, w["gru.weight_ih"], w["gru.bias_ih"])
        past = affine(deter, w["gru.weight_hh"], w["gru.bias_hh"])
        out = []
        for i in range(DETER):
            reset = sigmoid(ours[i] + past[i])
            keep = sigmoid(ours[DETER + i] + past[DETER + i])
            candidate = math.tanh(ours[2 * DETER + i] + reset * past[2 * DETER + i])
            out.append((1 - keep) * candidate + keep * deter[i])
        return out

    assert_same(cell, expected)


def test_the_plain_cell_turns_its_state_and_does_not_stretch_it():
    """All gates together begin orthogonal: no state grows on its way through them."""
    weight = PlainCell(Layers("none", "elu"), DETER, STOCH, ACTION, HIDDEN).gru.weight_hh
    torch.testing.assert_close(weight.T @ weight, torch.eye(DETER))


@pytest.mark.parametrize("kind", ["block", "norm"])
def test_states_are_kept_at_first(kind):
    """With gates of 0 the update is sigmoid(-1): 27 % new, 73 % old."""
    make = Layers()
    cell = BlockCell(make, 6, 4, 3, 5, 2) if kind == "block" else NormCell(make, 6, 4, 3, 5)
    with torch.no_grad():
        cell.gates.weight.zero_()
    deter, stoch, action = inputs_of()
    out = cell(deter, stoch, cell.embed(action))
    torch.testing.assert_close(out, deter * (1 - sigmoid(-1)))


def test_actions_beyond_one_are_limited_entry_by_entry():
    action = torch.tensor([[0.5, -3.0, 1.0, 20.0]], requires_grad=True)
    out = limited(action)
    assert out.tolist() == [[0.5, -1.0, 1.0, 1.0]]
    out.sum().backward()
    torch.testing.assert_close(action.grad, torch.tensor([[1.0, 1 / 3, 1.0, 0.05]]))
