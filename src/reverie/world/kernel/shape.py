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
SIZES = {
    (512, 64, 8, 32, 4): "1m",
    (2048, 256, 8, 32, 16): "12m",
    (3072, 384, 8, 32, 24): "25m",
    (4096, 512, 8, 32, 32): "50m",
    (6144, 768, 8, 32, 48): "100m",
    (8192, 1024, 8, 32, 64): "200m",
}
"""Widths that the kernels were made for: deter, hidden, blocks, groups, classes."""
KEPT = 2048
"""The largest deter whose weights stay in registers: 16 columns to each of 128 thread blocks."""
ROOM = 227 * 1024
"""Bytes of shared memory that a thread block can have on a GPU of compute capability 9.0."""
MOST_SLOTS = 16
"""Cells of streamed weights on their way to a warp: at 50m that is most of what a step needs."""
CACHED, AHEAD, LASTING = 4096, 8, 8
"""The largest deter whose streamed weights fit the second-level cache; for others, cells that are called there ahead,
and cells that it is to keep."""


@dataclass(frozen=True)
class Shape:
    """Widths that scan.cu is compiled for."""

    deter: int
    hidden: int
    blocks: int
    groups: int
    classes: int
    unimix: float
    tile: int = 16
    """Columns of a product that a thread block works out; with more than 16 its weights are streamed."""
    room: int = ROOM
    """Bytes of shared memory that a thread block may take, of which streamed weights take what others leave."""
    ahead: int = 0
    """Cells of streamed weights that are called to the cache beyond those that are on their way to shared memory."""
    lasting: int = 0
    """Of each warp's streamed cells, the first that the cache is to keep from step to step; 0 leaves it alone."""

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
        """Thread blocks, each of which works on its columns for the whole window."""
        return self.deter // self.tile

    @property
    def parts(self) -> int:
        """Parts that the joined projection cuts the state into."""
        return self.deter // (2 * self.hidden)

    @property
    def streamed(self) -> bool:
        """Whether weights pass through shared memory at every step."""
        return self.tile > 16

    @property
    def fixed(self) -> dict[str, int]:
        """Bytes of shared memory of each kernel without streamed weights."""
        block, hidden, part = self.block, self.hidden, self.deter // self.parts
        widths = {
            "forward": (max(block + 3 * hidden, part, self.latent), 3 * self.tile, 6 * hidden + block),
            "reverse": (max(3 * block, part, self.latent, 2 * hidden), 2 * self.tile, 5 * hidden),
        }
        spare, join = 8, max if self.streamed else lambda *both: sum(both)
        return {
            name: join(16 * (width + spare) * 2, 8 * 16 * (columns + spare) * 4) + 4 * vectors
            for name, (width, columns, vectors) in widths.items()
        }

    @property
    def slots(self) -> dict[str, int]:
        """Cells (16 inputs, `tile` columns) of streamed weights that each of 8 warps has room for."""
        cell = 8 * 16 * self.tile * 2
        return {
            name: min((self.room - n) // cell, MOST_SLOTS) if self.streamed else 0 for name, n in self.fixed.items()
        }

    @property
    def shared(self) -> dict[str, int]:
        """Bytes of shared memory of each kernel; scan.cu asserts that it counts the same."""
        return {name: n + self.slots[name] * 8 * 16 * self.tile * 2 for name, n in self.fixed.items()}

    @property
    def cells(self) -> dict[str, int]:
        """Cells of weights of each warp; scan.cu asserts that it counts the same."""
        part, special = self.deter // self.parts, max(self.hidden, self.latent)
        forward = part + special + self.block + 3 * self.hidden + 3 * self.block
        reverse = special + 2 * self.hidden + 3 * self.block + part + self.block
        return {"forward": forward // 128, "reverse": reverse // 128}

    @property
    def packed(self) -> dict[str, int]:
        """Weights that are streamed, or 0 where none are; the larger of two kinds of thread blocks counts for all."""
        size = self.ctas * 8 * 16 * self.tile if self.streamed else 0
        return {name: count * size for name, count in self.cells.items()}


def shape_of(rssm: RSSM) -> Shape:
    """The widths of a model that has a block cell and categorical latents."""
    cell, latent = rssm.cell, rssm.latent
    assert isinstance(cell, BlockCell) and isinstance(latent, Categorical)
    hidden = rssm.deter_in.out_features
    wide = rssm.deter // 128
    tile = 16 if rssm.deter <= KEPT else wide if wide % 16 == 0 else 2 * wide  # the latter is one of 64 thread blocks
    ahead, lasting = (0, 0) if rssm.deter <= CACHED else (AHEAD, LASTING)
    widths = (rssm.deter, hidden, cell.blocks, latent.groups, latent.classes)
    return Shape(*widths, latent.unimix, tile, ahead=ahead, lasting=lasting)


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
        *most, last = SIZES.values()
        return f"it is made for the widths of {', '.join(most)} and {last}"
    if batch != BATCH:
        return f"it is made for {BATCH} windows in each process, not {batch}"
    return "" if half else "it computes in bfloat16 (--world.precision)"
