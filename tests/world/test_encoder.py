"""Encoder and decoder: which observations they take, and what they do with each kind."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.config.dreamer import WorldConfig
from reverie.config.errors import UserError
from reverie.nn.layers import Layers
from reverie.world.decoder import Decoder
from reverie.world.encoder import Encoder, pixels
from reverie.world.rssm import State

SPACE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (32, 32, 3), np.uint8),
        "position": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        "speed": spaces.Box(-1, 1, (2, 2), np.float32),
        "door": spaces.Discrete(3),
        "keys": spaces.MultiDiscrete([2, 4]),
        "lamps": spaces.MultiBinary(2),
    }
)
CONFIG = WorldConfig(deter=8, hidden=6, groups=3, classes=4, blocks=2, units=8, depth=2, layers=2)
MAKE = Layers()
LEAD = (2, 3)


def rows_of(seed=0):
    rng = np.random.default_rng(seed)
    rows = {
        "image": rng.integers(0, 256, (*LEAD, 32, 32, 3), dtype=np.uint8),
        "position": rng.normal(size=(*LEAD, 2)).astype(np.float32) * 100,
        "speed": rng.normal(size=(*LEAD, 2, 2)).astype(np.float32),
        "door": rng.integers(0, 3, LEAD),
        "keys": rng.integers(0, 2, (*LEAD, 2)),
        "lamps": rng.integers(0, 2, (*LEAD, 2), dtype=np.int8),
        "is_first": np.zeros(LEAD, bool),
    }
    return {key: torch.from_numpy(value) for key, value in rows.items()}


def state_of():
    return State(torch.randn(*LEAD, 8), torch.randn(*LEAD, 12))


def test_bytes_become_numbers_around_zero():
    image = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 1, 3).expand(1, 4, 5, 3)
    x = pixels(image)
    assert x.shape == (1, 3, 4, 5)
    torch.testing.assert_close(x[0, :, 2, 2], torch.tensor([-0.5, -0.3, 0.5]))


def test_numbers_are_squashed_and_classes_are_one_hot():
    encoder, rows = Encoder(SPACE, replace(CONFIG, encoder_keys="position|door|keys|lamps"), MAKE), rows_of()
    vector = encoder.vector(rows)[1, 2].tolist()
    position = [math.copysign(math.log1p(abs(x)), x) for x in rows["position"][1, 2].tolist()]
    hot = [float(rows["door"][1, 2] == i) for i in range(3)]
    pairs = [(rows["keys"][1, 2, 0], 2), (rows["keys"][1, 2, 1], 4), *((x, 2) for x in rows["lamps"][1, 2])]
    hots = {"door": hot, "keys": [], "lamps": []}
    for (value, size), key in zip(pairs, ("keys", "keys", "lamps", "lamps")):
        hots[key] += [float(value == i) for i in range(size)]
    expected = position + [x for key in encoder.form.classes for x in hots[key]]
    assert vector == pytest.approx(expected, rel=1e-5)
    plain = Encoder(SPACE, replace(CONFIG, encoder_keys="position", symlog=False), MAKE)
    assert torch.equal(plain.vector(rows), rows["position"])


def test_images_and_vectors_go_side_by_side():
    encoder, rows = Encoder(SPACE, CONFIG, MAKE), rows_of()
    embed = encoder(rows)
    width = 8 * 4 * 4  # the last of three stages has four times the depth
    assert embed.shape == (*LEAD, width + 8) and encoder.outputs == width + 8
    rows["image"] = 255 - rows["image"]
    changed = (encoder(rows) != embed).any(0).any(0)
    assert changed[:width].any() and not changed[width:].any()
    rows = rows_of()
    rows["lamps"] = 1 - rows["lamps"]
    changed = (encoder(rows) != embed).any(0).any(0)
    assert changed[width:].any() and not changed[:width].any()


@pytest.mark.parametrize("pattern, count", [("image", 0), ("door", 3), ("position|speed", 6), (".*s.*", 6 + 6 + 4)])
def test_observations_are_chosen_by_their_whole_name(pattern, count):
    encoder = Encoder(SPACE, replace(CONFIG, encoder_keys=pattern), MAKE)
    assert encoder.form.size == count
    assert encoder(rows_of()).shape == (*LEAD, encoder.outputs)
    decoder = Decoder(SPACE, replace(CONFIG, decoder_keys=pattern), 12, MAKE)
    expected = {key for key in SPACE if re.fullmatch(pattern, key)}
    assert set(decoder(state_of())) == set(decoder.losses(state_of(), rows_of())) == expected


@pytest.mark.parametrize("kind, option", [(Encoder, "encoder_keys"), (Decoder, "decoder_keys")])
def test_wrong_patterns_are_errors(kind, option):
    def made(pattern):
        config = replace(CONFIG, **{option: pattern})
        return Encoder(SPACE, config, MAKE) if kind is Encoder else Decoder(SPACE, config, 12, MAKE)

    with pytest.raises(UserError, match=f"{option} 'imag' matches no observation.*position"):
        made("imag")
    with pytest.raises(UserError, match="regular expression"):
        made("(")


def test_losses_are_sums_over_each_observation():
    torch.manual_seed(0)
    decoder, rows, state = Decoder(SPACE, replace(CONFIG, recon_scale=0.5), 12, MAKE), rows_of(), state_of()
    losses, found = decoder.losses(state, rows), decoder(state)
    assert all(loss.shape == LEAD for loss in losses.values())
    image = found["image"].double() - rows["image"].double() / 255
    torch.testing.assert_close(losses["image"].double(), 0.5 * image.square().sum((-3, -2, -1)), rtol=1e-4, atol=0)
    log = rows["position"].sign() * rows["position"].abs().log1p()
    guess = found["position"].sign() * found["position"].abs().log1p()  # predictions are symexp of the output
    torch.testing.assert_close(losses["position"], 0.5 * (guess - log).square().sum(-1), rtol=1e-3, atol=1e-4)
    door = found["door"].gather(-1, rows["door"].unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(losses["door"], -door.log(), rtol=1e-4, atol=1e-5)  # no scale: it is a probability
    keys = found["keys"][..., :2].gather(-1, rows["keys"][..., :1]).log()
    keys = keys + found["keys"][..., 2:].gather(-1, rows["keys"][..., 1:]).log()
    torch.testing.assert_close(losses["keys"], -keys.squeeze(-1), rtol=1e-4, atol=1e-5)
    assert found["speed"].shape == (*LEAD, 4) and found["image"].shape == (*LEAD, 32, 32, 3)


@pytest.mark.parametrize("cnn", ["pool", "stride"])
def test_every_weight_of_a_decoder_learns(cnn):
    torch.manual_seed(0)
    decoder = Decoder(SPACE, replace(CONFIG, cnn=cnn), 12, MAKE)
    sum(loss.mean() for loss in decoder.losses(state_of(), rows_of()).values()).backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_all_bytes_count_the_same_whatever_the_leading_shape():
    torch.manual_seed(0)
    encoder, rows = Encoder(SPACE, CONFIG, MAKE), rows_of()
    flat = encoder({key: x.flatten(0, 1) for key, x in rows.items()})
    torch.testing.assert_close(flat.reshape(*LEAD, -1), encoder(rows), atol=1e-5, rtol=1e-4)


def test_image_networks_may_have_an_activation_of_their_own():
    space, rows = spaces.Dict({"image": SPACE["image"]}), rows_of()
    for cnn in ("pool", "stride"):
        config = replace(CONFIG, cnn=cnn, norm="none", activation="elu")
        lowest = {}
        for activation in ("same", "relu"):
            encoder = Encoder(space, replace(config, cnn_activation=activation), Layers("none", "elu"))
            lowest[activation] = encoder(rows).min()
        assert lowest["same"] < 0 <= lowest["relu"]
