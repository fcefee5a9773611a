"""Image networks: encoders from images to maps of features, and decoders back."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..config.errors import UserError
from ..nn.layers import Layers
from ..nn.subpixel import (
    enlarged_conv,
    enlarged_phases,
    kernels_of,
    phases_of,
    phases_of_pairs,
    phases_of_tiles,
    pooled_conv,
)
from ..nn.tail import paired_tail, pooled_tail, spread_tail

STAGES = 4
MANY = 64
"""Images from which on folding the kernels costs less than it saves."""
FEW = 64
"""Channels below which a GPU is faster at tiles of pixels than at pairs, though these take fewer products."""
WIDEST_MAP = 16
"""Longest side of the smallest map; a larger one would make the dense layers huge."""
MULTIPLES = (2, 3, 4, 4)
"""Channels of the pooling networks' stages, in units of the depth; never fewer than before, as `_fused` relies on."""


def stages_for(height: int, width: int) -> int:
    """How often an image can be halved, at most four times and not below 3 pixels."""
    stages = 0
    while stages < STAGES and height % 2 == 0 and width % 2 == 0 and min(height, width) >= 6:
        height, width, stages = height // 2, width // 2, stages + 1
    if max(height, width) > WIDEST_MAP:
        raise UserError(
            f"images of {height * 2**stages}x{width * 2**stages} pixels do not halve down to {WIDEST_MAP}: "
            "use --env.size 64, or another size of which a half, a quarter, an eighth or a sixteenth is that small"
        )
    return stages


class ChannelNorm(nn.Module):
    """The tail of a dense layer, applied to the channels of maps (B, c, h, w)."""

    def __init__(self, tail: nn.Module) -> None:
        super().__init__()
        self.tail = tail

    def forward(self, x: Tensor) -> Tensor:
        """The maps, normalised and activated."""
        return self.tail(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class PoolEncoder(nn.Module):
    """5x5 convolutions, each followed by 2x2 max-pooling."""

    folded = False
    """Whether convolution and pooling are one operation for many images, which GPUs are faster at."""
    fused = False
    """Whether what follows a folded convolution is one kernel too; `nn.tail.fusible` says what for."""

    def __init__(self, make: Layers, shape: tuple[int, ...], depth: int) -> None:
        super().__init__()
        height, width, channels = shape
        self.stages = stages = stages_for(height, width)
        widths = [depth * multiple for multiple in MULTIPLES[: max(1, stages)]]
        self.pool = nn.MaxPool2d(2) if stages else nn.Identity()
        sizes = [channels, *widths]
        self.convs = nn.ModuleList(make.conv(i, o, 5, padding=2) for i, o in pairwise(sizes))
        self.tails = nn.ModuleList(make.tail(size) for size in widths)
        self.outputs = widths[-1] * (height >> stages) * (width >> stages)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, E) of images (B, c, h, w) between -0.5 and 0.5."""
        if self.folded and self.stages and len(x) >= MANY:
            x = x.permute(0, 2, 3, 1)
            if self.fused:
                return self._fused(x).flatten(1)
            for conv, tail in zip(self.convs, self.tails):
                x = tail(pooled_conv(x, conv))
            return x.flatten(1)
        for conv, tail in zip(self.convs, self.tails):
            x = tail(self.pool(conv(x)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x.permute(0, 2, 3, 1).flatten(1)

    def _fused(self, x: Tensor) -> Tensor:
        """The folded form, with the maps between the stages as the next convolution takes them."""
        tiled = [False, *(kernels_of(conv)[0].shape[1] < FEW for conv in list(self.convs)[1:]), False]
        for i, (conv, tail) in enumerate(zip(self.convs, self.tails)):
            bias = kernels_of(conv)[1]
            if i and not tiled[i]:
                x = paired_tail(phases_of_pairs(x, conv), bias, tail)
            else:
                phases = phases_of_tiles(x, conv) if tiled[i] else phases_of(x, conv)
                x = pooled_tail(phases, bias, tail, tiled[i + 1])
        return x


class PoolDecoder(nn.Module):
    """Nearest upsampling and a 5x5 convolution, both at once, several times; state and latent enter separately."""

    fused = False
    """Whether what follows a convolution is one kernel; `nn.tail.fusible` says what for."""

    def __init__(
        self, make: Layers, shape: tuple[int, ...], depth: int, deter: int, stoch: int, units: int, blocks: int
    ) -> None:
        super().__init__()
        height, width, channels = shape
        self.stages = stages_for(height, width)
        widths = [depth * multiple for multiple in MULTIPLES[: max(1, self.stages)]]
        self.map = (height >> self.stages, width >> self.stages, widths[-1])
        self.blocks = math.gcd(blocks, deter, widths[-1])
        size = math.prod(self.map)
        self.deter_in = make.blocks(self.blocks, deter // self.blocks, size // self.blocks)
        self.stoch_in = nn.Sequential(make.dense(stoch, 2 * units), make.linear(2 * units, size))
        self.tail = make.tail(widths[-1])
        sizes = [*reversed(widths), channels] if self.stages else [widths[-1], channels]
        self.convs = nn.ModuleList(make.conv(i, o, 5, padding=2) for i, o in pairwise(sizes))
        self.tails = nn.ModuleList(make.tail(size) for size in sizes[1:-1])

    def forward(self, deter: Tensor, stoch: Tensor) -> Tensor:
        """Images (B, c, h, w) between 0 and 1."""
        height, width, channels = self.map
        blocks = self.deter_in(deter.reshape(len(deter), self.blocks, -1))
        # every block makes some channels of the whole map
        blocks = blocks.reshape(-1, self.blocks, height, width, channels // self.blocks)
        spread = blocks.permute(0, 2, 3, 1, 4).flatten(3)  # (B, h, w, c)
        x = self.tail(spread + self.stoch_in(stoch).reshape(spread.shape))
        *convs, last = self.convs
        for conv, tail in zip(convs, self.tails):
            x = self._enlarged(x, conv, tail)
        x = enlarged_conv(x, last) if self.stages else last(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return x.permute(0, 3, 1, 2).float().sigmoid()

    def _enlarged(self, x: Tensor, conv: nn.Module, tail: nn.Module) -> Tensor:
        """Maps (B, 2 h, 2 w, o) of maps (B, h, w, i)."""
        bias = kernels_of(conv)[1]
        if self.fused and len(bias) % 4 == 0:
            return spread_tail(enlarged_phases(x, conv), bias, tail)
        return tail(enlarged_conv(x, conv))


class StrideEncoder(nn.Module):
    """4x4 convolutions with stride 2, the channels doubling; padded, or unpadded as in the first two Dreamers."""

    def __init__(self, make: Layers, shape: tuple[int, ...], depth: int, padding: int) -> None:
        super().__init__()
        height, width, channels = shape
        if padding:
            stages = max(1, stages_for(height, width))
        else:
            check_valid(shape)
            stages = STAGES
        sizes = [channels, *(depth * 2**i for i in range(stages))]
        self.convs = nn.ModuleList(make.conv(i, o, 4, 2, padding) for i, o in pairwise(sizes))
        self.tails = nn.ModuleList(ChannelNorm(make.tail(size)) for size in sizes[1:])
        with torch.no_grad():
            self.outputs = self(torch.zeros(1, channels, height, width)).shape[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, E) of images (B, c, h, w) between -0.5 and 0.5."""
        for conv, tail in zip(self.convs, self.tails):
            x = tail(conv(x))
        return x.permute(0, 2, 3, 1).flatten(1)


class StrideDecoder(nn.Module):
    """Transposed 4x4 convolutions with stride 2, the channels halving."""

    def __init__(self, make: Layers, shape: tuple[int, ...], depth: int, features: int) -> None:
        super().__init__()
        height, width, channels = shape
        stages = stages_for(height, width)
        if not stages:
            raise UserError(f"images of {height}x{width} pixels need --world.cnn pool: their sides cannot be halved")
        widths = [depth * 2**i for i in reversed(range(stages))]
        self.map = (height >> stages, width >> stages, widths[0])
        self.inputs = make.linear(features, math.prod(self.map))
        sizes = [*widths, channels]
        self.convs = nn.ModuleList(make.deconv(i, o, 4, 2, 1) for i, o in pairwise(sizes))
        self.tails = nn.ModuleList(ChannelNorm(make.tail(size)) for size in widths)

    def forward(self, deter: Tensor, stoch: Tensor) -> Tensor:
        """Images (B, c, h, w), unbounded around 0 to 1."""
        x = self.inputs(torch.cat([deter, stoch], -1)).reshape(-1, *self.map).permute(0, 3, 1, 2)
        for conv, tail in zip(self.convs, self.tails):
            x = conv(tail(x))
        return x.float() + 0.5


class ValidDecoder(nn.Module):
    """From one pixel of many channels to 64x64 by four unpadded transposed convolutions."""

    def __init__(self, make: Layers, shape: tuple[int, ...], depth: int, features: int) -> None:
        super().__init__()
        check_valid(shape)
        self.inputs = make.linear(features, 32 * depth)
        sizes = [32 * depth, 4 * depth, 2 * depth, depth, shape[-1]]
        kernels = (5, 5, 6, 6)
        self.convs = nn.ModuleList(make.deconv(i, o, k, 2) for i, o, k in zip(sizes, sizes[1:], kernels))
        self.tails = nn.ModuleList(ChannelNorm(make.tail(size)) for size in sizes[1:-1])

    def forward(self, deter: Tensor, stoch: Tensor) -> Tensor:
        """Images (B, c, h, w), unbounded around 0 to 1."""
        x = self.inputs(torch.cat([deter, stoch], -1))[..., None, None]
        for conv, tail in zip(self.convs, self.tails):
            x = tail(conv(x))
        return self.convs[-1](x).float() + 0.5


def check_valid(shape: tuple[int, ...]) -> None:
    """The unpadded networks are made for one size."""
    if tuple(shape[:2]) != (64, 64):
        raise UserError(f"--world.cnn valid takes images of 64x64, not {shape[0]}x{shape[1]}: use --env.size 64")
