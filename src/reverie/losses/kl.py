"""The divergence between what was inferred and what was predicted."""

from __future__ import annotations

from torch import Tensor


def beyond_free(kl: Tensor, free: float, over_mean: bool) -> Tensor:
    """The KL above the free nats (the same shape); what is below has no gradient.

    The first two Dreamers compare the mean of the batch with the free nats, the third each row.
    """
    return kl.mean().clamp(min=free).expand_as(kl) if over_mean else kl.clamp(min=free)
