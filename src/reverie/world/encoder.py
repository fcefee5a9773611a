"""From observations to one vector."""

from __future__ import annotations

import re
from dataclasses import replace

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ..config.dreamer import WorldConfig
from ..config.errors import UserError
from ..data.rows import Batch
from ..envs.form import is_image
from ..nn.layers import Layers
from ..nn.outputs import symlog
from ..nn.vectors import VectorForm
from .images import PoolEncoder, StrideEncoder


def selected(space: spaces.Dict, pattern: str, option: str) -> spaces.Dict:
    """The observations whose whole name matches a regular expression; none at all is an error."""
    try:
        kept = {key: each for key, each in space.items() if re.fullmatch(pattern, key)}
    except re.error as error:
        raise UserError(f"--{option} {pattern!r} is not a regular expression: {error}") from error
    if not kept:
        raise UserError(f"--{option} {pattern!r} matches no observation: there are {', '.join(space)}")
    return spaces.Dict(kept)


class Encoder(nn.Module):
    """Images through convolutions, everything else through dense layers, side by side."""

    def __init__(self, space: spaces.Dict, config: WorldConfig, make: Layers) -> None:
        super().__init__()
        space = selected(space, config.encoder_keys, "world.encoder_keys")
        self.symlog = config.symlog
        self.images = tuple(key for key, each in space.items() if is_image(each))
        convs = [make_encoder(config, make, space[key].shape or ()) for key in self.images]
        self.convs = nn.ModuleList(convs)
        self.form = VectorForm(space)
        self.outputs = sum(conv.outputs for conv in convs)
        if self.form.size:
            self.dense = make.mlp(self.form.size, config.units, config.layers)
            self.outputs += config.units if config.layers else self.form.size

    def forward(self, rows: Batch) -> Tensor:
        """The embedding (..., E) of rows (...)."""
        lead = rows["is_first"].shape
        parts = [conv(pixels(rows[key])).reshape(*lead, -1) for key, conv in zip(self.images, self.convs)]
        if self.form.size:
            parts.append(self.dense(self.vector(rows)))
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]

    def vector(self, rows: Batch) -> Tensor:
        """All that is no image as one vector (..., n)."""
        numbers = [self.form.number(rows, key) for key in self.form.numbers]
        numbers = [symlog(x) for x in numbers] if self.symlog else numbers
        return torch.cat(numbers + [self.form.one_hots(rows, key) for key in self.form.classes], -1)


def pixels(image: Tensor) -> Tensor:
    """Images (..., h, w, c) of bytes as (B, c, h, w) between -0.5 and 0.5."""
    return image.reshape(-1, *image.shape[-3:]).permute(0, 3, 1, 2).float() / 255 - 0.5


def image_layers(config: WorldConfig, make: Layers) -> Layers:
    """How the layers of image networks are made."""
    return make if config.cnn_activation == "same" else replace(make, activation=config.cnn_activation)


def make_encoder(config: WorldConfig, make: Layers, shape: tuple[int, ...]) -> PoolEncoder | StrideEncoder:
    """The image encoder that the configuration asks for."""
    make = image_layers(config, make)
    if config.cnn == "pool":
        return PoolEncoder(make, shape, config.depth)
    return StrideEncoder(make, shape, config.depth, padding=int(config.cnn == "stride"))
