from __future__ import annotations

import os

import pytest

from reverie.envs import opengl


@pytest.fixture(autouse=True)
def _headless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def test_variable_is_set_only_while_the_choice_is_made() -> None:
    with opengl.offscreen():
        assert os.environ["MUJOCO_GL"] == "egl"
    assert "MUJOCO_GL" not in os.environ


def test_variable_is_taken_back_after_an_error() -> None:
    with pytest.raises(ValueError), opengl.offscreen():
        raise ValueError
    assert "MUJOCO_GL" not in os.environ


@pytest.mark.parametrize(("name", "value"), [("MUJOCO_GL", "osmesa"), ("DISPLAY", ":0"), ("WAYLAND_DISPLAY", "w")])
def test_nothing_is_touched_with_a_display_or_a_wish(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with opengl.offscreen():
        assert dict(os.environ) == before
    assert dict(os.environ) == before
