"""Learning features without a decoder: they must tell which observation they belong to."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..config.dreamer import WorldConfig
from ..data.rows import Batch
from ..nn.layers import Layers
from .rssm import State


class Barlow(nn.Module):
    """Redundancy reduction: each entry of the projected state correlates with its own entry of the embedding alone."""

    def __init__(self, config: WorldConfig, stoch: int, embed: int, make: Layers) -> None:
        super().__init__()
        self.scale, self.off_diagonal = config.recon_scale, config.barlow_offdiagonal
        self.project = make.linear(config.deter + stoch, embed, last=True)

    def losses(self, state: State, embed: Tensor, rows: Batch) -> dict[str, Tensor]:
        """The weighted loss, alike for every row (...)."""
        left, right = standardized(self.project(state.feature)), standardized(embed)
        return {"barlow": self.scale * redundancy(left, right, self.off_diagonal).expand(embed.shape[:-1])}


class InfoNCE(nn.Module):
    """Contrast: among the embeddings of the whole batch, each state must pick its own."""

    def __init__(self, config: WorldConfig, stoch: int, embed: int, make: Layers) -> None:
        super().__init__()
        self.scale = config.recon_scale
        self.query = make.linear(config.deter + stoch, config.units, last=True)
        self.key = make.linear(embed, config.units, last=True)

    def losses(self, state: State, embed: Tensor, rows: Batch) -> dict[str, Tensor]:
        """The weighted loss of each row (...)."""
        query = self.query(state.feature).float().flatten(0, -2)
        key = self.key(embed).float().flatten(0, -2)
        return {"infonce": self.scale * contrast(query, key).reshape(embed.shape[:-1])}


def make_contrast(config: WorldConfig, stoch: int, embed: int, make: Layers) -> Barlow | InfoNCE | None:
    """What stands in for a decoder, if anything does."""
    if config.representation == "reconstruction":
        return None
    kind = Barlow if config.representation == "barlow" else InfoNCE
    return kind(config, stoch, embed, make)


def standardized(x: Tensor) -> Tensor:
    """Rows (B, n) with every entry at mean 0 and deviation 1 over the batch."""
    x = x.float().flatten(0, -2)
    return (x - x.mean(0)) * (x.var(0, unbiased=False) + 1e-5).rsqrt()


def redundancy(left: Tensor, right: Tensor, off_diagonal: float) -> Tensor:
    """How far the cross-correlation of standardised rows (B, n) is from the identity, as one number."""
    correlation = left.T @ right / len(left)  # (n, n)
    own = correlation.diagonal()
    return (1 - own).square().sum() + off_diagonal * (correlation.square().sum() - own.square().sum())


def contrast(query: Tensor, key: Tensor) -> Tensor:
    """The loss (B,) of picking each query's own key among all keys (B, n)."""
    scores = query @ key.T / query.shape[-1] ** 0.5
    return F.cross_entropy(scores, torch.arange(len(query), device=query.device), reduction="none")
