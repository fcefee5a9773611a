import torch

from reverie.losses.disagreement import deviation, variance

GUESSES = torch.tensor([[[0.0, 1.0]], [[2.0, 1.0]], [[4.0, 4.0]]])  # three members, one state, two entries


def test_worked_out_by_hand():
    """Means 2 and 2, squares 4 + 0 + 4 and 1 + 1 + 4, over two: variances 4 and 3."""
    assert variance(GUESSES).tolist() == [3.5]
    torch.testing.assert_close(deviation(GUESSES), torch.tensor([(2 + 3**0.5) / 2]))


def test_agreement_is_nothing_and_has_a_gradient_that_is_a_number():
    guesses = torch.ones(3, 4, 2, requires_grad=True)
    for measure in (variance, deviation):
        found = measure(guesses)
        assert found.shape == (4,) and found.max() < 1e-5
        found.sum().backward()
        assert torch.isfinite(guesses.grad).all()


def test_where_all_are_wrong_alike_there_is_no_disagreement():
    """Disagreement is about the members, not about the truth: what is merely random does not attract."""
    assert variance(GUESSES + 100).item() == variance(GUESSES).item()
