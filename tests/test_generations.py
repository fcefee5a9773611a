"""The tables of Dreamer's generations in docs/algorithms.md say what the presets do."""

import re
from pathlib import Path

from reverie.config.dreamers import GENERATIONS
from reverie.config.options import convert, flattened, options
from reverie.config.presets import stacked
from reverie.config.uses import unused

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


def of_generation(preset: str, option: str):
    """What a generation has of an option; None where it does nothing."""
    config = stacked([preset])
    without_explorer = option.startswith("explore.")  # which no generation has, and no table tells of
    return None if unused(option, config) and not without_explorer else flattened(config)[option]
