"""From states back to observations."""

from __future__ import annotations

from gymnasium import spaces
from torch import Tensor, nn

from ..config.dreamer import WorldConfig
from ..data.rows import Batch
from ..envs.form import is_image
from ..nn.layers import Layers
from ..nn.outputs import Classes, Squares
from ..nn.vectors import VectorForm
from .encoder import image_layers, selected
from .images import PoolDecoder, StrideDecoder, ValidDecoder
from .rssm import State


class Decoder(nn.Module):
    """Every observation predicted from the state."""

    def __init__(self, space: spaces.Dict, config: WorldConfig, stoch: int, make: Layers) -> None:
        super().__init__()
        space = selected(space, config.decoder_keys, "world.decoder_keys")
        self.scale = config.recon_scale
        self.images = tuple(key for key, each in space.items() if is_image(each))
        self.convs = nn.ModuleList(make_decoder(config, make, space[key].shape or (), stoch) for key in self.images)
        self.form = VectorForm(space)
        outputs: dict[str, Squares | Classes] = {
            key: Squares(size, config.symlog) for key, size in self.form.numbers.items()
        }
        outputs |= {key: Classes(sizes) for key, sizes in self.form.classes.items()}
        self.vectors = tuple(outputs)
        self.outputs = list(outputs.values())
        if outputs:
            features = config.deter + stoch
            self.dense = make.mlp(features, config.units, config.layers)
            width = config.units if config.layers else features
            self.heads = nn.ModuleList(make.linear(width, each.size, last=True) for each in outputs.values())

    def forward(self, state: State) -> Batch:
        """The expected observations by key: images (..., h, w, c) around 0 to 1, vectors, probabilities of classes."""
        found = self._raw(state)
        found |= {key: output.pred(found[key]) for key, output in zip(self.vectors, self.outputs)}
        return found

    def losses(self, state: State, rows: Batch) -> dict[str, Tensor]:
        """The weighted loss (...) of each observation's prediction."""
        found = self._raw(state)
        losses = {}
        for key in self.images:
            losses[key] = (found[key] - rows[key].float() / 255).square().sum((-3, -2, -1)) * self.scale
        for key, output in zip(self.vectors, self.outputs):
            if key in self.form.numbers:
                losses[key] = output.loss(found[key], self.form.number(rows, key)) * self.scale
            else:
                losses[key] = output.loss(found[key], self.form.one_hots(rows, key))
        return losses

    def _raw(self, state: State) -> Batch:
        lead = state.deter.shape[:-1]
        flat = state.flat()
        found = {}
        for key, conv in zip(self.images, self.convs):
            image = conv(flat.deter, flat.stoch).permute(0, 2, 3, 1)  # (B, h, w, c)
            found[key] = image.reshape(*lead, *image.shape[1:])
        if self.vectors:
            x = self.dense(state.feature)
            found |= {key: head(x) for key, head in zip(self.vectors, self.heads)}
        return found


def make_decoder(
    config: WorldConfig, make: Layers, shape: tuple[int, ...], stoch: int
) -> PoolDecoder | StrideDecoder | ValidDecoder:
    """The image decoder that the configuration asks for."""
    make = image_layers(config, make)
    if config.cnn == "pool":
        return PoolDecoder(make, shape, config.depth, config.deter, stoch, config.units, config.blocks)
    kind = StrideDecoder if config.cnn == "stride" else ValidDecoder
    return kind(make, shape, config.depth, config.deter + stoch)
