"""Dreams beside the truth: a few rows are seen, then the model goes on by itself with the actions that were taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.rows import Batch
from ..nn.heads import NumberHead
from .model import Window, WorldModel
from .rssm import State

CONTEXT = 5
"""Rows that are seen before the eyes are closed, unless something else is asked for."""


class Pair(NamedTuple):
    """What was, and what the model makes of it, both (B, T, ...)."""

    truth: Tensor
    dreamt: Tensor


@dataclass(frozen=True)
class Dream:
    """Windows (B, T) as they were and as they were dreamt."""

    seen: Tensor
    """Which rows (B, T) the model was shown."""
    images: dict[str, Pair]
    """(B, T, h, w, c), from 0 to 1."""
    vectors: dict[str, Pair]
    """(B, T, n); classes are one-hot in truth and probabilities in the dream."""
    numbers: dict[str, Pair]
    """(B, T): `reward`, `continue` (0 where the episode ends for good), and `value`, whose truth is what the critic
    thinks with open eyes."""


@torch.no_grad()
def dream(
    world: WorldModel, window: Window, context: int, generator: torch.Generator, critic: NumberHead | None = None
) -> Dream:
    """What the model predicts of a window when it is shown the first rows of each episode in it alone.

    A window that begins in the middle of an episode counts as one more episode.
    """
    rows, seen = window.rows, glimpses(window.is_first, context)
    noise = world.rssm.latent.noise(tuple(seen.shape), generator)
    state = states(world, window, seen, noise)
    target = rows["reward"].tanh() if world.config.reward_target == "tanh" else rows["reward"]
    numbers = {
        "reward": Pair(target, world.reward(state.feature)),
        "continue": Pair((~rows["is_terminal"]).float(), world.cont(state.feature) / world.gamma),
    }
    if critic is not None:
        awake = states(world, window, torch.ones_like(seen), noise)
        numbers["value"] = Pair(critic.pred(awake.feature), critic.pred(state.feature))
    return Dream(seen, *decoded(world, state, rows), numbers)


def glimpses(is_first: Tensor, context: int) -> Tensor:
    """Which rows (B, T) are seen: the first of the window, and the first of every episode that begins in it."""
    step = torch.arange(is_first.shape[1], device=is_first.device).expand_as(is_first)
    begun = torch.where(is_first, step, 0).cummax(1).values
    return step - begun < context


def states(world: WorldModel, window: Window, seen: Tensor, noise: Tensor) -> State:
    """States (B, T) of a window: inferred from the observation where a row is seen, predicted where it is not."""
    found = [state for state, _, _ in filtered(world, window, seen, noise)]
    return State(torch.stack([state.deter for state in found], 1), torch.stack([state.stoch for state in found], 1))


def filtered(world: WorldModel, window: Window, seen: Tensor, noise: Tensor) -> Iterator[tuple[State, Tensor, Tensor]]:
    """Row by row the state (B,), and the parameters of its latent: inferred from the row, and predicted without it."""
    rssm = world.rssm
    embedded = rssm.embed_in(world.encoder(window.rows))
    acted = rssm.cell.embed(window.action * (~window.is_first).unsqueeze(-1))
    state = window.start
    for t in range(seen.shape[1]):
        state = rssm.reset(state, window.is_first[:, t])
        deter = rssm.cell(state.deter, state.stoch, acted[:, t])
        posterior, prior = rssm.posterior(deter, embedded[:, t]), rssm.prior(deter)
        open_eyes = seen[:, t].reshape(-1, *[1] * (prior.dim() - 1))
        state = State(deter, rssm.latent.sample(torch.where(open_eyes, posterior, prior), noise[:, t]))
        yield state, posterior, prior


@torch.no_grad()
def surprise(world: WorldModel, window: Window, generator: torch.Generator) -> Tensor:
    """How much more the rows of a window tell than could be foreseen: the mean KL, as `world/kl` is of training."""
    latent, seen = world.rssm.latent, torch.ones_like(window.is_first)
    noise = latent.noise(tuple(seen.shape), generator)
    kls = [latent.kl(posterior, prior) for _, posterior, prior in filtered(world, window, seen, noise)]
    return torch.stack(kls).mean()


def decoded(world: WorldModel, state: State, rows: Batch) -> tuple[dict[str, Pair], dict[str, Pair]]:
    """Images and vectors as they were and as the states show them; nothing where the model has no decoder."""
    decoder = world.decoder
    if decoder is None:
        return {}, {}
    found = decoder(state)
    images = {key: Pair(rows[key].float() / 255, found[key].float().clamp(0, 1)) for key in decoder.images}
    vectors = {key: Pair(decoder.form.number(rows, key), found[key]) for key in decoder.form.numbers}
    vectors |= {key: Pair(decoder.form.one_hots(rows, key), found[key]) for key in decoder.form.classes}
    return images, vectors


def errors(dream: Dream) -> dict[str, Tensor]:
    """How wrong the rows are that were not seen: 0 is perfect, 1 no better than their mean, NaN where nothing varies.

    `open_loop_error` is of observations (and by key where there are several), `open_loop_reward_error` of rewards.
    """
    unseen = ~dream.seen
    by_key = {key: unexplained(pair, unseen, together=True) for key, pair in dream.images.items()}
    by_key |= {key: unexplained(pair, unseen, together=False) for key, pair in dream.vectors.items()}
    found = {"open_loop_reward_error": unexplained(dream.numbers["reward"], unseen, together=True)}
    if by_key:
        found["open_loop_error"] = torch.stack(list(by_key.values())).nanmean()
    if len(by_key) > 1:
        found |= {f"open_loop_error/{key}": value for key, value in by_key.items()}
    return found


def unexplained(pair: Pair, counted: Tensor, together: bool) -> Tensor:
    """The share of the truth's variance over the counted rows (B, T) that the dream leaves unexplained.

    Entries are each weighed by their own variance and averaged, or taken `together`, as pixels are: many never change.
    """
    truth, dreamt = (x.reshape(*counted.shape, -1).float() for x in pair)  # (B, T, n)
    weight = counted.unsqueeze(-1).float()
    mean = (weight * truth).sum((0, 1)) / weight.sum((0, 1))
    wrong = (weight * (dreamt - truth).square()).sum((0, 1))
    spread = (weight * (truth - mean).square()).sum((0, 1))
    if together:
        wrong, spread = wrong.sum(), spread.sum()
    return torch.where(spread > 1e-8, wrong / spread, torch.nan).nanmean()
