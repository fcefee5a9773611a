"""Models and windows to filter."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reverie.config.dreamer import WorldConfig
from reverie.config.presets import stacked
from reverie.nn.layers import Layers
from reverie.world.kernel.shape import BATCH
from reverie.world.rssm import RSSM, State

CONFIGS = {
    "tiny": WorldConfig(deter=64, hidden=16, groups=4, classes=4, blocks=2),
    "odd": WorldConfig(deter=128, hidden=16, groups=4, classes=8, blocks=4),
    "wide": WorldConfig(deter=1024, hidden=128, groups=8, classes=32, blocks=8),
    "wider": WorldConfig(deter=2048, hidden=256, groups=8, classes=64, blocks=8),
    **{size: stacked(["dreamer_v3", size]).world for size in ("1m", "12m", "25m", "50m", "100m", "200m")},
}


class Window(NamedTuple):
    """What a scan takes."""

    start: State
    first: Tensor
    acted: Tensor
    embedded: Tensor
    noise: Tensor

    def turned(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Inputs with steps first (T, B, ...)."""
        first, acted, embedded, noise = (x.transpose(0, 1).contiguous() for x in self[1:])
        return first, acted, embedded, noise

    def halved(self) -> Window:
        """Inputs as products give them under autocast."""
        return self._replace(acted=self.acted.bfloat16(), embedded=self.embedded.bfloat16())


def rssm_of(config: WorldConfig, device: str = "cpu") -> RSSM:
    """A model with random biases, norms and weights."""
    torch.manual_seed(0)
    rssm = RSSM(config, 24, 6, Layers(config.norm, config.activation, config.init)).to(device)
    with torch.no_grad():
        for name, parameter in rssm.named_parameters():
            if parameter.ndim < 2 or name.endswith("bias"):
                parameter.add_(0.2 * torch.randn_like(parameter))
    return rssm


def window_of(rssm: RSSM, steps: int, batch: int = BATCH) -> Window:
    """A window (B, T) with episodes that begin inside it; none in its last row."""
    device, hidden, latent = rssm.deter_in.weight.device, rssm.deter_in.out_features, rssm.latent
    generator = torch.Generator(device).manual_seed(1)
    start = torch.randn(batch, rssm.deter, device=device).tanh()
    drawn = latent.unpack(torch.randint(latent.classes, (batch, latent.groups), device=device))
    first = torch.rand(batch, steps, device=device) < 0.2
    first[0, 0], first[-1] = True, False
    acted = torch.nn.functional.silu(torch.randn(batch, steps, hidden, device=device))
    embedded = torch.randn(batch, steps, hidden, device=device)
    return Window(State(start, drawn), first, acted, embedded, latent.noise((batch, steps), generator))


def goals_of(rssm: RSSM, steps: int, batch: int = BATCH) -> tuple[Tensor, Tensor, Tensor]:
    """Arbitrary gradients of states and parameters (T, B, ...)."""
    device, latent = rssm.deter_in.weight.device, rssm.latent
    deter, stoch = torch.randn(steps, batch, rssm.deter), torch.randn(steps, batch, latent.size)
    params = torch.randn(steps, batch, latent.groups, latent.classes)
    return deter.to(device), stoch.to(device), params.to(device)
