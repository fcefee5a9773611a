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
    decay = discount[1:] * trace[1:]
    future = value[-1]
    returns = []
    for t in range(step.shape[0] - 1, -1, -1):
        future = torch.addcmul(step[t], decay[t], future)
        returns.append(future)
    return torch.stack(returns[::-1])


def arrival_return(reward: Tensor, value: Tensor, discount: Tensor, trace: Tensor) -> Tensor:
    """Returns (T, ...) of states whose value includes their own reward: G_t = r_t + d_t ((1 - l') v' + l' G').

    `reward` and `discount` are those of row t itself, `value` and `trace` those of row t+1, as the first two Dreamers
    count; the last row's value ends the sum.
    """
    earlier = [torch.cat([x[:1], x[:-1]]) for x in (reward, discount)]
    return lambda_return(earlier[0], value, earlier[1], trace)
