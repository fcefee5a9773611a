import re
from dataclasses import replace
from pathlib import Path

import pytest

from reverie.config.errors import UserError
from reverie.envs import registry
from reverie.envs.registry import SUITES, suite

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", [name for name in SUITES if suite(name).needs and name not in ("gym", "minecraft")])
def test_a_missing_suite_says_how_to_get_it(name, monkeypatch):
    owner = replace(suite(name), needs=("not_there",))
    monkeypatch.setattr(registry, "suite", lambda _: owner)
    with pytest.raises(UserError, match=r"needs not_there: .*make setup-suites, or ") as told:
        registry.find(f"{name}_x")
    assert "setup-suites:" in (ROOT / "Makefile").read_text()
    extra = re.search(r"pip install -e '\.\[(\w+)\]'", str(told.value))
    file = re.search(r"-r (\S+)\)", str(told.value))
    if extra:
        assert f"\n{extra[1]} = [" in (ROOT / "pyproject.toml").read_text()
    else:
        assert file and sorted(re.findall(r"\S+==[\d.]+\d", str(told.value))) == sorted(
            re.findall(r"^\S+==\S+$", (ROOT / file[1]).read_text(), re.M)
        )  # a wheel comes without the file
    shown = extra[0] if extra else f"pip install --no-deps -r {file[1]}"
    assert f"`{shown}`" in (ROOT / "docs/environments.md").read_text()
