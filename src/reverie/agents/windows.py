"""From sampled batches to windows: where the state before their first row comes from."""

from __future__ import annotations

import torch
from torch import Tensor

from ..config.errors import UserError
from ..config.schema import Config
from ..data.rows import Batch
from ..world.model import Window
from ..world.rssm import RSSM, State


def check_lengths(config: Config) -> None:
    """Refuse windows that are too short for what is to be learned from them."""
    if config.behavior.starts == 1 and config.behavior.replay_scale:
        raise UserError("--behavior.starts 1 leaves the replayed critic loss no pair of rows: give 2 or more, or 0")
    behavior = config.behavior
    if config.agent.policy == "imagined" and behavior.horizon == 1 and (behavior.arrival or not behavior.train_start):
        raise UserError("--behavior.horizon 1 leaves dreams nothing to learn from here: give 2 or more")
    if config.world.overshoot >= config.replay.length:
        raise UserError("--world.overshoot must be below --replay.length, the rows of a window")


def window_of(rows: Batch, observed: Batch, action: Tensor, rssm: RSSM, begin: str) -> Window:
    """A batch (B, T + context) as a window of its `observed` columns.

    It begins at the latents `stored` in its first row, which gives context and is not learned from; or, with `carried`,
    at `carry/...`, where the last batch's windows ended, in the rows that continue those; or else at the beginning.
    """
    is_first = rows["is_first"]
    if begin == "stored":
        start = State(rows["deter"][:, 0].float(), rssm.latent.unpack(rows["stoch"][:, 0]))
        return Window({key: x[:, 1:] for key, x in observed.items()}, start, action[:, :-1], is_first[:, 1:])
    start, before = rssm.initial(len(action)), torch.zeros_like(action[:, 0])
    forget = torch.ones_like(is_first[:, 0])
    if "carry/deter" in rows:
        start, before = State(rows["carry/deter"], rows["carry/stoch"]), rows["carry/action"]
        forget = ~rows["continues"]
    led = torch.cat([before.unsqueeze(1), action[:, :-1]], 1)
    first = torch.cat([(is_first[:, 0] | forget).unsqueeze(1), is_first[:, 1:]], 1)
    return Window(observed, start, led, first)


def refreshed(rows: Batch, fresh: Batch, learned: Tensor) -> Batch:
    """Columns of a batch (B, T + context) with fresh values (B, T) behind the context; old ones unless `learned`."""
    written = {}
    for key, value in fresh.items():
        old = rows[key]
        context = old.shape[1] - value.shape[1]
        kept = torch.cat([old[:, :context], value], 1) if context else value
        written[key] = torch.where(learned, kept, old)
    return written
