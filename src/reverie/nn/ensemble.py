"""Several networks of one form but different weights, worked out side by side."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import ACTIVATIONS, Layers


class Ensemble(nn.Module):
    """Members that see the same inputs and know nothing of each other."""

    def __init__(self, make: Layers, members: int, inputs: int, units: int, layers: int, outputs: int) -> None:
        super().__init__()
        self.members, self.norm = members, make.norm
        sizes = [units] * layers + [outputs]
        # one product for all members, since their inputs are the same
        self.first = make.side_by_side(members, inputs, sizes[0])
        self.later = nn.ModuleList(make.members(members, i, o) for i, o in pairwise(sizes))
        self.activation = ACTIVATIONS[make.activation]()

    def forward(self, *inputs: Tensor) -> Tensor:
        """What each member predicts, (K, ..., outputs), from inputs (..., n) that are laid side by side."""
        given = torch.cat(inputs, -1)
        x = self.first(given).reshape(-1, self.members, self.first.out_features // self.members)
        x = x.transpose(0, 1).contiguous()  # (K, B, units)
        for layer in self.later:
            x = layer(self.activation(self._normalized(x)))
        return x.reshape(self.members, *given.shape[:-1], -1).float()

    def _normalized(self, x: Tensor) -> Tensor:
        """Normalised vectors of each member, without scales to learn: shared ones would couple the members."""
        wide = x.float()
        if self.norm == "rms":
            wide = F.rms_norm(wide, wide.shape[-1:], eps=1e-4)
        elif self.norm == "layer":
            wide = F.layer_norm(wide, wide.shape[-1:], eps=1e-3)
        return wide.to(x.dtype)
