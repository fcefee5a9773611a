"""The encoder's convolutions on a GPU, layer by layer: folded with their pooling, beside whole ones of 5x5.

    python benchmarks/encoder.py [--sizes 12m 50m 200m] [--images 1024] [--json FILE]

A convolution folded by tiles of pixels takes 44 % more products than a whole one, one by pairs 20 %, but of shapes that
GPUs are faster at where there are few channels. All are followed by the same kernel, whose phases a whole one has to
gather first. Random images in bfloat16, compiled, there and back, replayed as CUDA graphs; medians of repeats.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from filter import milliseconds
from torch import Tensor, nn
from torch.nn import functional as F

from reverie.agents.compiled import keep_compiled
from reverie.config.presets import stacked
from reverie.nn.layers import Layers
from reverie.nn.subpixel import kernels_of, phases_of, phases_of_pairs, phases_of_tiles, tiles_of
from reverie.nn.tail import paired_tail, pooled_tail
from reverie.world.images import PoolEncoder

DEVICE = torch.device("cuda", 0)
SIDE = 64
Form = Callable[[Tensor], Tensor]


def forms(encoder: PoolEncoder, layer: int) -> dict[str, Form]:
    """A layer in all its forms, from maps (B, h, w, i), or their tiles where one takes these, to maps (B, h, w, o)."""
    conv, tail = encoder.convs[layer], encoder.tails[layer]
    assert isinstance(conv, nn.Conv2d)
    bias = kernels_of(conv)[1]

    def by_tiles(x: Tensor) -> Tensor:
        phases = phases_of_tiles(x, conv) if layer else phases_of(x, conv)
        return pooled_tail(phases, bias, tail, tiled=False)

    def by_pairs(x: Tensor) -> Tensor:
        return paired_tail(phases_of_pairs(x, conv), bias, tail)

    def whole(x: Tensor) -> Tensor:
        weight = conv.weight.contiguous(memory_format=torch.channels_last)
        found = F.conv2d(x.permute(0, 3, 1, 2), weight, padding=2).permute(0, 2, 3, 1)
        return pooled_tail(tiles_of(found), bias, tail, tiled=False)

    return {"tiles": by_tiles, **({"pairs": by_pairs} if layer else {}), "whole": whole}


def timed(form: Form, x: Tensor, weights: list[Tensor], first: bool) -> float:
    """Milliseconds there and back; pixels want no gradient."""
    compiled, x = torch.compile(form, dynamic=False), x.clone().requires_grad_(not first)
    wanted = weights if first else [x, *weights]

    def both() -> list[Tensor]:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            y = compiled(x)
        return list(torch.autograd.grad(y, wanted, torch.ones_like(y)))

    return milliseconds(both)


def figures(size: str, images: int) -> list[dict[str, Any]]:
    """All forms of all layers of a published size."""
    config = stacked(["dreamer_v3", size]).world
    torch.manual_seed(0)
    make = Layers(config.norm, config.activation, config.init)
    encoder = PoolEncoder(make, (SIDE, SIDE, 3), config.depth).to(DEVICE)
    found = []
    for layer, conv in enumerate(encoder.convs):
        assert isinstance(conv, nn.Conv2d)
        side = SIDE >> layer
        x = torch.randn(images, side, side, conv.in_channels, device=DEVICE).bfloat16()
        weights = [*conv.parameters(), *encoder.tails[layer].parameters()]
        every = forms(encoder, layer)
        given = {name: tiles_of(x) if layer and name == "tiles" else x for name in every}
        with torch.autocast(DEVICE.type, torch.bfloat16), torch.no_grad():
            *some, whole = (form(given[name][:8]) for name, form in every.items())
            apart = max((each - whole).abs().max().item() for each in some)
        times = {name: timed(form, given[name], weights, not layer) for name, form in every.items()}
        found.append({"layer": layer, "channels": [conv.in_channels, conv.out_channels], "apart": apart, **times})
        told = ", ".join(f"{name} {spent:.3f} ms ({spent / times['whole']:.2f})" for name, spent in times.items())
        channels = f"{conv.in_channels} to {conv.out_channels}"
        print(f"{size:5} layer {layer}, {channels}: {told}; {apart:.3f} apart", flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["12m", "50m", "200m"], help="published sizes")
    parser.add_argument("--images", type=int, default=1024, help="images in a batch")
    parser.add_argument("--json", type=Path, help="where to leave the figures, each size as soon as it is known")
    words = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("the encoder's kernels need a GPU")
    keep_compiled()
    torch.backends.cudnn.benchmark = True  # as in training
    told: dict[str, Any] = {"device": torch.cuda.get_device_name(DEVICE), "torch": torch.__version__}
    for size in words.sizes:
        told[size] = figures(size, words.images)
        if words.json:
            words.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
