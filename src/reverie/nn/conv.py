"""Convolutional trunks from uint8 images (..., h, w, c) to a feature vector."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..config.errors import UserError
from .blocks import orthogonal


@dataclass(frozen=True)
class Layer:
    """Channels, kernel, stride and padding of one convolution."""

    channels: int
    kernel: int
    stride: int
    padding: int = 0


TRUNKS: dict[str, tuple[Layer, ...]] = {
    "nature": (Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1)),
    "guide": (Layer(32, 8, 4, 2), Layer(64, 4, 2, 1), Layer(64, 3, 1, 1)),
    "small": (Layer(16, 3, 1),),
}
"""Mnih et al.'s network for 84x84; the same with padding, which keeps 64x64 at 8x8; one layer for tiny grids."""


def trunk_for(name: str, height: int, width: int) -> tuple[Layer, ...]:
    """The convolutions of that name; `auto` goes by the image's size."""
    if name == "auto":
        name = "small" if min(height, width) < 32 else "guide" if min(height, width) < 80 else "nature"
    return TRUNKS[name]


def smallest(layers: tuple[Layer, ...]) -> int:
    """The least width of an image that all layers find something in."""
    width = 1
    for layer in reversed(layers):
        width = max(1, (width - 1) * layer.stride + layer.kernel - 2 * layer.padding)
    return width


class Trunk(nn.Module):
    """Convolutions with ReLU, then one linear layer with ReLU; in bfloat16 where that is asked for."""

    def __init__(self, shape: tuple[int, ...], layers: tuple[Layer, ...], features: int, in_half: bool = False) -> None:
        super().__init__()
        self.in_half, self.shape = in_half, tuple(shape)
        channels = shape[-1]
        self.convs = nn.ModuleList()
        for layer in layers:
            conv = nn.Conv2d(channels, layer.channels, layer.kernel, layer.stride, layer.padding)
            self.convs.append(orthogonal(conv, math.sqrt(2)))
            channels = layer.channels
        # channels_last is how images lie in memory anyway, and the faster layout on CPU (1.4 times) and GPU
        for parameter in self.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        if min(shape[:2]) < (least := smallest(layers)):
            raise UserError(
                f"images of {shape[0]}x{shape[1]} pixels are too small for convolutions that need {least}x{least}: "
                "--ppo.cnn auto chooses by their size, --env.size makes them larger"
            )
        with torch.no_grad():
            flat = self._maps(torch.zeros(1, *shape, dtype=torch.uint8)).numel()
        self.linear = orthogonal(nn.Linear(flat, features), math.sqrt(2))

    def forward(self, image: Tensor) -> Tensor:
        """Features (..., F) of images (..., h, w, c), in float32."""
        flat = image.reshape(-1, *image.shape[-3:])
        with torch.autocast(image.device.type, torch.bfloat16, enabled=self.in_half):
            features = self.linear(self._maps(flat, torch.bfloat16 if self.in_half else torch.float32)).relu()
        return features.float().reshape(*image.shape[:-3], -1)

    def _maps(self, image: Tensor, kind: torch.dtype = torch.float32) -> Tensor:
        first, *rest = self.convs
        assert isinstance(first, nn.Conv2d)
        x = image.permute(0, 3, 1, 2).to(kind)  # (B, c, h, w), a view of what lies in memory as (B, h, w, c)
        # dividing the weights by 255 instead of the pixels is the same and touches fewer numbers
        x = nn.functional.conv2d(x, first.weight / 255, first.bias, first.stride, first.padding).relu_()
        for conv in rest:
            x = conv(x).relu_()
        return x.permute(0, 2, 3, 1).flatten(1)  # (B, h * w * c), without a copy
