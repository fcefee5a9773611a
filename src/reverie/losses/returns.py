"""Returns of a stream of rows."""

from __future__ import annotations

import torch
from torch import Tensor


def lambda_return(reward: Tensor, value: Tensor, discount: Tensor, trace: Tensor) -> Tensor:
    """Returns (T, ...) of the first T of T+1 rows: R_t = r' + d' ((1 - l') v' + l' R'), where ' is row t+1.

    `discount` is gamma where the row is no terminal and 0 where it is one. `trace` is lambda inside an episode and 0 at
    its last row, where the return bootstraps from the value of the last observation instead of going on into the next
    episode. The advantage of GAE is this return minus the value of row t.
    """
    step = reward[1:] + discount[1:] * (1 - trace[1:]) * value[1:]
    return discounted(step, discount[1:] * trace[1:], value[-1])


def discounted(step: Tensor, decay: Tensor, future: Tensor) -> Tensor:
    """Sums (T, ...) from the back, R_t = s_t + d_t R', that end in the future (...).

    Every row takes in the sum of the next one, then of the next two, four, ...: a few operations on all rows at once
    instead of a few for each row.
    """
    total = torch.cat([step, future.unsqueeze(0)])
    decay = torch.cat([decay, torch.zeros_like(future).unsqueeze(0)])
    reach = 1
    while reach < len(total):
        # the last rows have reached the end already
        total = torch.cat([torch.addcmul(total[:-reach], decay[:-reach], total[reach:]), total[-reach:]])
        decay = torch.cat([decay[:-reach] * decay[reach:], decay[-reach:]])
        reach *= 2
    return total[:-1]


def arrival_return(reward: Tensor, value: Tensor, discount: Tensor, trace: Tensor) -> Tensor:
    """Returns (T, ...) of states whose value includes their own reward: G_t = r_t + d_t ((1 - l') v' + l' G').

    `reward` and `discount` are those of row t itself, `value` and `trace` those of row t+1, as the first two Dreamers
    count; the last row's value ends the sum.
    """
    earlier = [torch.cat([x[:1], x[:-1]]) for x in (reward, discount)]
    return lambda_return(earlier[0], value, earlier[1], trace)
