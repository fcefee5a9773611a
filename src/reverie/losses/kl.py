"""The divergence between what was inferred and what was predicted."""

from __future__ import annotations

import torch
from torch import Tensor

from ..nn import ranks


def beyond_free(kl: Tensor, free: float, over_mean: bool) -> Tensor:
    """The KL above the free nats (the same shape); what is below has no gradient.

    The first two Dreamers compare the mean of the batch with the free nats, the third each row. Where several processes
    learn together, the batch is that of all.
    """
    if not over_mean:
        return kl.clamp(min=free)
    mean = kl.mean()
    return torch.where(ranks.average_(mean.detach().clone()) > free, mean, free).expand_as(kl)
