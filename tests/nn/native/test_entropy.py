"""Cross-entropy as programs: the same losses and gradients as torch."""

import copy

import pytest
import torch

from reverie.nn.native.entropy import NativeEntropy
from reverie.nn.outputs import TwoHot

pytestmark = pytest.mark.usefixtures("c_compiler")


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("lead", [(2, 3), (20, 30)])
def test_losses_and_gradients(raw, lead):
    torch.manual_seed(0)
    plain, native = TwoHot(63, raw), TwoHot(63, raw)
    native.cross_entropy = NativeEntropy(native)
    target, other, by = 50 * torch.randn(lead), 1e9 * torch.randn(lead), torch.randn(lead)
    found = []
    for output in (plain, native):
        logits = (9 * torch.randn(*lead, 63, generator=torch.Generator().manual_seed(1))).requires_grad_()
        losses = output.loss(logits, target) + output.loss_of_both(logits, target, other, 0.7)
        (losses * by).sum().backward()
        found.append((losses.detach(), logits.grad))
    for one, two in zip(*found):
        torch.testing.assert_close(two, one, rtol=1e-5, atol=1e-5)


def test_what_is_not_finite_is_passed_on():
    output = TwoHot(15)
    output.cross_entropy = NativeEntropy(output)
    logits = torch.zeros(300, 15)
    logits[7, 3] = torch.nan
    assert output.loss(logits, torch.zeros(300)).isfinite().logical_not().nonzero().tolist() == [[7]]


def test_copies_do_it_by_themselves():
    output = TwoHot(15)
    output.cross_entropy = NativeEntropy(output)
    assert not isinstance(copy.deepcopy(output).cross_entropy, NativeEntropy)
