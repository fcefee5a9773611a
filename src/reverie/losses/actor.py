"""Losses of an actor in imagination. Callers reduce."""

from __future__ import annotations

import torch
from torch import Tensor


def survival(cont: Tensor) -> Tensor:
    """How much of an imagined trajectory counts up to and with each state (H, ...): the product of its discounts.

    The first factor is the start's own: what is imagined from the end of an episode counts nothing.
    """
    return cont.cumprod(0)


def arrival_weight(cont: Tensor) -> Tensor:
    """How much each state (H, ...) counts before its own discount: that of its reward, which it still receives."""
    return torch.cat([torch.ones_like(cont[:1]), cont[:-1]]).cumprod(0)


def reinforce(logp: Tensor, advantage: Tensor) -> Tensor:
    """The objective whose gradient makes actions likelier by their advantage."""
    return logp * advantage.detach()


def mixed(through: Tensor, score: Tensor, mix: Tensor | float) -> Tensor:
    """The objective through the dynamics and that of REINFORCE, mixed: 1 is the first alone, 0 the second."""
    return mix * through + (1 - mix) * score
