"""Free nats, for each row and for the batch."""

import pytest
import torch

from reverie.losses.kl import beyond_free

KL = [[0.2, 0.9], [3.0, 1.5]]  # mean 1.4


@pytest.mark.parametrize(
    "free, over_mean, value, slope",
    [
        (1.0, False, [[1.0, 1.0], [3.0, 1.5]], [[0.0, 0.0], [1.0, 1.0]]),
        (1.0, True, [[1.4, 1.4], [1.4, 1.4]], [[1.0, 1.0], [1.0, 1.0]]),
        (2.0, True, [[2.0, 2.0], [2.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]),
        (0.0, True, [[1.4, 1.4], [1.4, 1.4]], [[1.0, 1.0], [1.0, 1.0]]),
    ],
)
def test_what_is_free_has_no_gradient(free, over_mean, value, slope):
    kl = torch.tensor(KL, requires_grad=True)
    found = beyond_free(kl, free, over_mean)
    torch.testing.assert_close(found.detach(), torch.tensor(value))
    found.sum().backward()
    torch.testing.assert_close(kl.grad, torch.tensor(slope))
