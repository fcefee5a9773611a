"""What outputs mean: numbers worked out by hand, and exactly zero where nothing is known."""

import math

import numpy as np
import pytest
import torch

from reverie.nn.heads import NumberHead
from reverie.nn.layers import Layers
from reverie.nn.outputs import Bernoulli, Classes, Normal, Squares, TwoHot, cross_entropy, make_output, symexp, symlog


def test_symlog_and_back():
    x = torch.tensor([-1e6, -1.0, -1e-4, 0.0, 0.5, 3.0, 1e6])
    expected = [math.copysign(math.log(1 + abs(v)), v) for v in x.tolist()]
    torch.testing.assert_close(symlog(x), torch.tensor(expected), rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(symexp(symlog(x)), x, rtol=1e-5, atol=1e-8)
    assert symexp(torch.tensor(2.0)).item() == pytest.approx(math.e**2 - 1)
    near = torch.zeros(1, requires_grad=True)
    symlog(near + 1e-9).sum().backward()
    assert near.grad.item() == pytest.approx(1)


def bins_of(raw, count=255):
    even = np.linspace(-20, 20, count)
    return np.sign(even) * np.expm1(np.abs(even)) if raw else even


@pytest.mark.parametrize("raw", [True, False])
def test_bins_are_mirrored_around_zero(raw):
    edges = TwoHot(255, raw).edges
    assert edges[127] == 0 and torch.equal(edges, -edges.flip(0))
    torch.testing.assert_close(edges.double(), torch.from_numpy(bins_of(raw)), rtol=1e-6, atol=1e-6)


def written_out(logits, target, raw):
    """Cross-entropy with the two-hot target, in float64 with a search over bins."""
    bins = bins_of(raw, len(logits))
    value = target if raw else math.copysign(math.log1p(abs(target)), target)
    value = min(max(value, bins[0]), bins[-1])
    high = next(i for i in range(1, len(bins)) if bins[i] >= value or i == len(bins) - 1)
    share = (value - bins[high - 1]) / (bins[high] - bins[high - 1])
    two_hot = np.zeros(len(bins))
    two_hot[high - 1], two_hot[high] = 1 - share, share
    logp = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    return -(two_hot * logp).sum(), np.exp(logp) - two_hot


TARGETS = [0.0, 1.0, -1.0, 0.07, 12.5, -333.0, 4.8e8, 1e12, -1e12, float(bins_of(True)[140])]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_two_hot_loss_and_its_gradient(raw, target):
    logits = np.random.default_rng(0).normal(size=255)
    x = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    loss = TwoHot(255, raw).loss(x, torch.tensor(target))
    loss.backward()
    expected, slope = written_out(x.detach().double().numpy(), target, raw)
    assert loss.item() == pytest.approx(expected, rel=2e-4)
    torch.testing.assert_close(x.grad.double(), torch.from_numpy(slope), atol=2e-4, rtol=1e-3)


def test_three_bins_by_hand():
    """Bins -symexp(20), 0, symexp(20); a target a quarter up lies a quarter on the upper bin."""
    top = math.expm1(20)
    x = torch.tensor([0.0, math.log(2), math.log(5)])  # probabilities 1/8, 2/8, 5/8
    head = TwoHot(3)
    expected = -(0.75 * math.log(2 / 8) + 0.25 * math.log(5 / 8))
    assert head.loss(x, torch.tensor(top / 4)).item() == pytest.approx(expected, rel=1e-5)
    assert head.pred(x).item() == pytest.approx(top * (5 - 1) / 8, rel=1e-5)
    squashed = TwoHot(3, raw=False)
    assert squashed.pred(x).item() == pytest.approx(math.expm1(20 * (5 - 1) / 8), rel=1e-4)
    expected = -(0.75 * math.log(2 / 8) + 0.25 * math.log(5 / 8))
    assert squashed.loss(x, torch.tensor(math.expm1(5.0))).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("level", [0.0, 3.7, -11.0])
def test_even_logits_predict_exactly_zero(raw, level):
    x = torch.full((7, 3, 255), level)
    assert (TwoHot(255, raw).pred(x) == 0).all()
    assert (TwoHot(255, raw).pred(x.bfloat16()) == 0).all()


def test_mirrored_logits_predict_exactly_zero():
    half = torch.randn(50, 127, generator=torch.Generator().manual_seed(0)) * 3
    x = torch.cat([half, torch.zeros(50, 1), half.flip(-1)], -1)
    assert (TwoHot(255).pred(x) == 0).all()


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("value", [0.0, 0.3, -7.0, 1000.0])
def test_the_right_distribution_predicts_its_target(raw, value):
    """Logits of the two-hot target give the target back."""
    bins = bins_of(raw)
    place = value if raw else math.copysign(math.log1p(abs(value)), value)
    high = int(np.searchsorted(bins, place))
    high = max(high, 1)
    share = (place - bins[high - 1]) / (bins[high] - bins[high - 1])
    probs = np.zeros(255)
    probs[high - 1], probs[high] = 1 - share, share
    pred = TwoHot(255, raw).pred(torch.from_numpy(np.log(probs + 1e-30)).float())
    assert pred.item() == pytest.approx(value, rel=1e-3, abs=1e-5)


def test_two_hot_works_in_float32_whatever_comes_in():
    x = torch.randn(4, 255, generator=torch.Generator().manual_seed(0)).bfloat16()
    head = TwoHot(255)
    assert head.pred(x).dtype == head.loss(x, torch.ones(4)).dtype == torch.float32
    assert torch.equal(head.loss(x, torch.ones(4)), head.loss(x.float(), torch.ones(4)))
    assert torch.equal(head.pred(x), head.pred(x.float()))


def test_normal_is_half_the_square():
    x = torch.tensor([[2.0], [-1.0]])
    assert Normal().pred(x).tolist() == [2.0, -1.0]
    assert Normal().loss(x, torch.tensor([5.0, -1.0])).tolist() == [4.5, 0.0]


def test_bernoulli_with_soft_targets():
    logit, target = 0.4, 0.99
    prob = 1 / (1 + math.exp(-logit))
    x = torch.tensor([[logit]], requires_grad=True)
    loss = Bernoulli().loss(x, torch.tensor([target]))
    expected = -(target * math.log(prob) + (1 - target) * math.log(1 - prob))
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss.sum().backward()
    assert x.grad.item() == pytest.approx(prob - target, rel=1e-5)
    assert Bernoulli().pred(x).item() == pytest.approx(prob, rel=1e-6)


def test_squares_are_summed_and_squashed_on_demand():
    x, target = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, -2.0]])
    assert Squares(2, False).loss(x, target).tolist() == [4.0]
    expected = (1 - math.log(4)) ** 2 + (-2 + math.log(3)) ** 2
    assert Squares(2, True).loss(x, target).item() == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(Squares(2, True).pred(x), torch.tensor([[math.e - 1, 1 - math.e**2]]))
    assert torch.equal(Squares(2, False).pred(x), x)


def test_classes_side_by_side():
    x = torch.tensor([[0.0, math.log(3), 0.0, 0.0, math.log(2)]])  # 1/4 3/4, then 1/4 1/4 1/2
    head = Classes((2, 3))
    torch.testing.assert_close(head.pred(x), torch.tensor([[0.25, 0.75, 0.25, 0.25, 0.5]]))
    target = torch.tensor([[0.0, 1.0, 1.0, 0.0, 0.0]])
    assert head.loss(x, target).item() == pytest.approx(-math.log(0.75) - math.log(0.25), rel=1e-6)


def test_heads_of_scale_zero_begin_at_zero():
    torch.manual_seed(0)
    feature = torch.randn(5, 9)
    for kind in ("symexp_twohot", "symlog_twohot"):
        head = NumberHead(Layers(), 9, 8, 2, make_output(kind, 255), scale=0.0)
        assert (head.pred(feature) == 0).all()
        head.loss(feature, torch.ones(5)).sum().backward()
        assert head.linear.weight.grad.abs().sum() > 0
    assert isinstance(make_output("normal", 255), Normal)


def test_values_are_not_blurred_by_half_precision():
    torch.manual_seed(0)
    head, feature = NumberHead(Layers("rms", "silu"), 9, 16, 1, make_output("symexp_twohot", 255)), torch.randn(200, 9)
    bins = torch.arange(255.0)
    with torch.no_grad():
        head.linear.weight *= 0.1
        head.linear.bias.copy_(16 - (bins - 166).square() / 4)  # about 450
        exact = head.pred(feature)
        with torch.autocast("cpu", torch.bfloat16):
            found, logits = head.pred(feature), head(feature)
    assert 400 < exact.mean() < 600
    assert (found - exact).abs().mean() < 0.05
    assert (head.output.pred(logits.bfloat16()) - exact).abs().mean() > 0.3


@pytest.mark.parametrize("kind", ["normal", "symexp_twohot", "symlog_twohot"])
def test_the_loss_of_two_targets_is_the_sum_of_theirs(kind):
    output, generator = make_output(kind, 15), torch.Generator().manual_seed(0)
    logits = torch.randn(4, 6, output.size, generator=generator).requires_grad_()
    first, second = (20 * torch.randn(4, 6, generator=generator) for _ in range(2))
    losses = [output.loss_of_both(logits, first, second, 0.3)]
    losses.append(output.loss(logits, first) + 0.3 * output.loss(logits, second))
    slopes = [torch.autograd.grad(loss.square().sum(), logits)[0] for loss in losses]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*slopes)


def test_cross_entropy_has_the_gradient_of_torch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 7, generator=generator, dtype=torch.float64).requires_grad_()
    classes, shares = torch.tensor([[0, 3, 3], [1, 2, 6]] * 2 + [[4, 4, 4]]), torch.rand(5, 3, generator=generator)
    plain = -(logits.log_softmax(-1).gather(-1, classes) * shares).sum(-1)
    found = cross_entropy(logits, classes, shares)
    torch.testing.assert_close(found, plain)
    goal = torch.randn(5, generator=generator, dtype=torch.float64)
    slopes = [torch.autograd.grad(each, logits, goal)[0] for each in (found, plain)]
    torch.testing.assert_close(*slopes)
