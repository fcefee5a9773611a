"""The tables of Dreamer's generations in docs/algorithms.md say what the presets do."""

import re
from pathlib import Path

from reverie.config.dreamers import GENERATIONS
from reverie.config.options import convert, flattened, options
from reverie.config.presets import stacked

ROOT = Path(__file__).parent.parent


def test_the_tables_of_generations_are_those_of_the_presets():
    tables = (ROOT / "docs/algorithms.md").read_text().partition("## Generations")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| `(\w+\.[\w.]+)` \| (.+) \|$", tables, re.M)
    shown = {option: cells.split(" | ") for option, cells in lines}
    assert len(shown) == len(lines), "an option stands in two tables"
    for option, each in options().items():
        values = [of_generation(name, option) for name in GENERATIONS]
        cells = shown.pop(option, None)
        assert cells or len(set(values) - {None}) < 2, f"{option} is missing"
        for cell, value in zip(cells or [], values, strict=bool(cells)):
            assert (cell == "–") == (value is None), option
            found = None if value is None else convert(option, cell, each.kind)
            assert found == value or round(value, 3) == found, option
    assert not shown


WITHOUT = {
    "world.classes": {"world.latent": "gaussian"},
    "world.unimix": {"world.latent": "gaussian"},
    "behavior.slow_target": {"behavior.slow": "none"},
    "behavior.slow_scale": {"behavior.slow": "none"},
    "optim.actor.": {"optim.joint": True},
    "optim.critic.": {"optim.joint": True},
}
"""Beginnings of options -> with which others they do nothing."""


def of_generation(preset: str, option: str):
    """What a generation has of an option; None where it does nothing."""
    values = flattened(stacked([preset]))
    idle = [others for start, others in WITHOUT.items() if option.startswith(start)]
    return None if any(others.items() <= values.items() for others in idle) else values[option]
