"""The shapes that the kernels are made for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...nn.gru import BlockCell
from ...nn.layers import RMSNorm
from ..latent import Categorical
from ..rssm import RSSM

BATCH = 16
"""Windows of a batch: the height of a tile of the tensor cores."""
SIZES = {(2048, 256, 8, 32, 16): "12m", (512, 64, 8, 32, 4): "1m"}
"""Widths that the kernels were made for: deter, hidden, blocks, groups, classes."""


@dataclass(frozen=True)
class Shape:
    """Widths that scan.cu is compiled for."""

    deter: int
    hidden: int
    blocks: int
    groups: int
    classes: int
    unimix: float

    @property
    def block(self) -> int:
        """Width of one block of the state."""
        return self.deter // self.blocks

    @property
    def latent(self) -> int:
        """Width of a latent."""
        return self.groups * self.classes

    @property
    def ctas(self) -> int:
        """Thread blocks, each of which keeps its share of the weights for the whole window."""
        return self.deter // 16

    @property
    def parts(self) -> int:
        """Parts that the joined projection cuts the state into."""
        return self.deter // (2 * self.hidden)

    @property
    def shared(self) -> dict[str, int]:
        """Bytes of shared memory of each kernel; scan.cu asserts that it counts the same."""
        block, hidden, part = self.block, self.hidden, self.deter // self.parts
        spare, sums = 8, 8 * 16 * 4
        forward = 16 * (max(block + 3 * hidden, part, self.latent) + spare) * 2
        reverse = 16 * (max(3 * block, part, self.latent, 2 * hidden) + spare) * 2
        return {
            "forward": forward + sums * (48 + spare) + 4 * (6 * hidden + block),
            "reverse": reverse + sums * (32 + spare) + 4 * 5 * hidden,
        }


def shape_of(rssm: RSSM) -> Shape:
    """The widths of a model that has a block cell and categorical latents."""
    cell, latent = rssm.cell, rssm.latent
    assert isinstance(cell, BlockCell) and isinstance(latent, Categorical)
    hidden = rssm.deter_in.out_features
    return Shape(rssm.deter, hidden, cell.blocks, latent.groups, latent.classes, latent.unimix)


def unfit(rssm: RSSM, batch: int, half: bool) -> str:
    """Why windows of a batch are not what the kernels are made for, in a line; empty if they are."""
    latent, cell = rssm.latent, rssm.cell
    if not isinstance(cell, BlockCell) or not isinstance(latent, Categorical):
        return "it is made for the block cell and categorical latents"
    if latent.unimix <= 0:
        return "it needs a uniform share in the latents (--world.unimix)"
    if rssm.start is not None or len(rssm.posterior_net[1]):  # type: ignore[arg-type]
        return "it needs an initial state of zeros and one posterior layer"
    tails = (cell.tail, list(cell.deter_in)[1:], list(cell.stoch_in)[1:], rssm.posterior_net[0])
    if any([type(part) for part in tail] != [RMSNorm, torch.nn.SiLU] for tail in tails):  # type: ignore[union-attr]
        return "it needs RMS norms and SiLU"
    shape = shape_of(rssm)
    if (shape.deter, shape.hidden, shape.blocks, shape.groups, shape.classes) not in SIZES:
        return f"it is made for the widths of {' and '.join(SIZES.values())}"
    if batch != BATCH:
        return f"it is made for {BATCH} windows in each process, not {batch}"
    return "" if half else "it computes in bfloat16 (--world.precision)"
