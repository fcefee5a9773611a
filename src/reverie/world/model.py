"""The world model: observations in, states, predictions and losses out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ..config.dreamer import WorldConfig
from ..data.rows import Batch
from ..losses.kl import beyond_free
from ..nn.heads import NumberHead
from ..nn.layers import Layers
from ..nn.outputs import Bernoulli, make_output
from .contrast import make_contrast
from .decoder import Decoder
from .encoder import Encoder
from .rssm import RSSM, State

NAMES = frozenset({"reward", "cont", "dyn", "rep", "actor", "critic", "replay_critic", "barlow", "infonce"})
"""Losses that are not of an observation; an observation of such a name has its loss under another."""

ROW_KL = "row_kl"
"""The one metric that is not a number but one for each row."""


@dataclass(frozen=True)
class Window:
    """Rows (B, T) to learn from, and what was before them."""

    rows: Batch
    start: State
    """The state before the first row (B,)."""
    action: Tensor
    """The action (B, T, A) that led to each row."""
    is_first: Tensor
    """Where the state before a row is to be forgotten (B, T)."""


class Seen(NamedTuple):
    """What a window (B, T) is to the world model, and where the gradients of everything learned from it meet."""

    state: State
    posterior: Tensor
    """The parameters of the latents."""
    embed: Tensor

    def leaves(self) -> Seen:
        """The same numbers, which keep the gradients that arrive at them."""
        deter, stoch, posterior, embed = (part.detach().requires_grad_() for part in self._parts)
        return Seen(State(deter, stoch), posterior, embed)

    def backward(self, *leaves: Seen) -> None:
        """Pass on what gradients have arrived at leaves."""
        parts, grads = [], []
        for part, *held in zip(self._parts, *(each._parts for each in leaves)):
            arrived = [leaf.grad for leaf in held if leaf.grad is not None]
            if arrived:
                parts.append(part)
                grads.append(sum(arrived[1:], arrived[0]))
        torch.autograd.backward(parts, grads)

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        return (*self.state, self.posterior, self.embed)


class WorldModel(nn.Module):
    """Encoder, recurrent state space, and heads for observations, reward and continuation."""

    def __init__(self, space: spaces.Dict, action: int, config: WorldConfig, gamma: float) -> None:
        super().__init__()
        self.config, self.gamma = config, gamma
        self.tells_rows = False
        """Whether metrics have the KL of each row, too."""
        make = Layers(config.norm, config.activation, config.init)
        self.encoder = Encoder(space, config, make)
        self.rssm = RSSM(config, self.encoder.outputs, action, make)
        stoch = self.rssm.latent.size
        self.features = config.deter + stoch
        self.decoder = Decoder(space, config, stoch, make) if config.representation == "reconstruction" else None
        self.contrast = make_contrast(config, stoch, self.encoder.outputs, make)
        self.previous = Decoder(space, config, stoch, make) if config.previous_scale else None
        output = make_output(config.reward_head, config.bins)
        # two-hot heads begin at exactly zero, so that nothing is expected before anything is known
        scale = 1.0 if config.reward_head == "normal" else 0.0
        self.reward_head = NumberHead(make, self.features, config.units, config.reward_layers, output, scale)
        self.cont_head: NumberHead | None = None
        if config.cont_head:
            self.cont_head = NumberHead(make, self.features, config.units, config.cont_layers, Bernoulli())

    def filter_step(self, state: State, action: Tensor, rows: Batch, noise: Tensor) -> State:
        """The state (N,) after seeing rows (N, ...); `action` led there from the state before."""
        shares = self.rssm.shares(self.encoder(rows), action, rows["is_first"])
        return self.rssm.filter(state, rows["is_first"], *shares, noise)[0]

    def reward(self, feature: Tensor) -> Tensor:
        """The expected reward (...) that comes with states, given their features."""
        return self.reward_head.pred(feature)

    def cont(self, feature: Tensor) -> Tensor:
        """The expected discount (...) of what follows states: gamma, or less where the episode may end there."""
        if self.cont_head is None:
            return torch.full(feature.shape[:-1], self.gamma, device=feature.device)
        return self.cont_head.pred(feature) * (1.0 if self.config.cont_discounted else self.gamma)

    def losses(self, window: Window, generator: torch.Generator) -> tuple[State, dict[str, Tensor], dict[str, Tensor]]:
        """States (B, T) of a window, the weighted losses (B, T) by name, and metrics."""
        seen = self.observe(window, generator)
        return seen.state, *self.predictions(seen, window, generator)

    def observe(self, window: Window, generator: torch.Generator) -> Seen:
        """The states (B, T) of a window."""
        embed = self.encoded(window.rows)
        return Seen(*self.rssm.observe(window.start, embed, window.action, window.is_first, generator), embed)

    def predictions(
        self, seen: Seen, window: Window, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weighted losses (B, T) of all that is predicted from the states of a window, and metrics."""
        state, posterior, embed = seen
        losses, metrics = self.predicted(state, posterior, window.rows)
        losses = self.reconstructed(state, window.rows) | losses
        if self.contrast is not None:
            losses |= self.contrast.losses(state, embed, window.rows)
        if self.previous is not None:
            losses |= self._previous_losses(self.previous, self._seen_by("decoder", state), window)
        if self.config.overshoot:
            losses |= self._overshoot_losses(state, window, generator)
        return losses, metrics

    def encoded(self, rows: Batch) -> Tensor:
        """The embedding (..., E) of rows (...)."""
        return self.encoder(rows)

    def predicted(self, state: State, posterior: Tensor, rows: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weighted losses (B, T) of rewards, ends and latents predicted from states, and metrics.

        Where it is asked for, the KL of each row (B, T) is among these, before free nats and means.
        """
        config, latent = self.config, self.rssm.latent
        prior = self.rssm.prior(state.deter)
        dyn, rep = latent.kl(posterior.detach(), prior), latent.kl(posterior, prior.detach())
        losses = self.paid(state, rows)
        losses["dyn"] = config.dyn_scale * beyond_free(dyn, config.free_nats, config.free_mean)
        losses["rep"] = config.rep_scale * beyond_free(rep, config.free_nats, config.free_mean)
        metrics = {
            "kl": dyn.detach().mean(),
            "prior_entropy": latent.entropy(prior.detach()).mean(),
            "posterior_entropy": latent.entropy(posterior.detach()).mean(),
        }
        if self.tells_rows:
            metrics[ROW_KL] = dyn.detach().clone()  # a view of it would be one of what has gradients, if compiled
        return losses, metrics

    def head_losses(self, state: State, rows: Batch) -> dict[str, Tensor]:
        """The weighted losses (B, T) of what the heads predict at states."""
        return self.observed(state, rows) | self.paid(state, rows)

    def reconstructed(self, state: State, rows: Batch) -> dict[str, Tensor]:
        """The same as `observed`, of the states of a window: compiled where updates are."""
        return self.observed(state, rows)

    def observed(self, state: State, rows: Batch) -> dict[str, Tensor]:
        """The weighted losses (B, T) of observations predicted from states."""
        if self.decoder is None:
            return {}
        found = self.decoder.losses(self._seen_by("decoder", state), rows)
        return {f"observed_{key}" if key in NAMES else key: loss for key, loss in found.items()}

    def paid(self, state: State, rows: Batch) -> dict[str, Tensor]:
        """The weighted losses (B, T) of rewards and ends predicted from states."""
        config = self.config
        losses = {"reward": config.reward_scale * self.reward_loss(self._seen_by("reward", state), rows)}
        if self.cont_head is not None:
            cont = (~rows["is_terminal"]).float() * (self.gamma if config.cont_discounted else 1.0)
            losses["cont"] = config.cont_scale * self.cont_head.loss(self._seen_by("cont", state).feature, cont)
        return losses

    def reward_loss(self, state: State, rows: Batch) -> Tensor:
        """The loss (...) of the rewards of rows at states, not weighted."""
        reward = rows["reward"].tanh() if self.config.reward_target == "tanh" else rows["reward"]
        return self.reward_head.loss(state.feature, reward)

    def _seen_by(self, head: str, state: State) -> State:
        return state if head in self.config.grad_heads else state.detach()

    def _previous_losses(self, decoder: Decoder, state: State, window: Window) -> dict[str, Tensor]:
        later = State(state.deter[:, 1:], state.stoch[:, 1:])
        losses = decoder.losses(later, {key: x[:, :-1] for key, x in window.rows.items()})
        inside = (~window.is_first[:, 1:]).float() * self.config.previous_scale
        return {f"previous/{key}": loss * inside for key, loss in losses.items()}

    def _overshoot_losses(self, state: State, window: Window, generator: torch.Generator) -> dict[str, Tensor]:
        """Losses of the heads at states predicted 1 to `overshoot` steps ahead with the actions that were taken."""
        ahead = self.config.overshoot
        length = window.is_first.shape[1]
        count = length - ahead
        if count < 1:
            return {}
        batch = len(window.is_first)
        dreamt = State(state.deter[:, :count], state.stoch[:, :count]).flat()
        inside = torch.ones(batch, count, device=state.deter.device)
        total: dict[str, Tensor] = {}
        for k in range(1, ahead + 1):
            noise = self.rssm.latent.noise((batch * count,), generator)
            dreamt = self.rssm.step(dreamt, window.action[:, k : k + count].flatten(0, 1), noise)
            inside = inside * (~window.is_first[:, k : k + count]).float()
            shaped = State(dreamt.deter.reshape(batch, count, -1), dreamt.stoch.reshape(batch, count, -1))
            found = self.head_losses(shaped, {key: x[:, k : k + count] for key, x in window.rows.items()})
            for key, loss in found.items():
                total[f"ahead/{key}"] = total.get(f"ahead/{key}", 0.0) + loss * inside
        return {key: loss * (self.config.overshoot_scale / ahead) for key, loss in total.items()}
