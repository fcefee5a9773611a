"""Presets: they stack, they are checked, and a user's own file is one of them."""

from pathlib import Path

import pytest

import reverie
from reverie.config.errors import UserError
from reverie.config.presets import PRESETS, stacked
from reverie.config.schema import Config


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid_and_stacks_with_debug(name):
    config = stacked([name, "debug"])
    assert config.run.steps <= 1000
    assert PRESETS[name].about


def test_the_guides_defaults_for_mario():
    config = stacked(["mario_ppo"])
    ppo = config.ppo
    assert (config.task, config.envs.count, config.run.steps, config.run.eval_every) == ("mario_1-1", 32, 10**7, 10**5)
    assert (ppo.rollout, ppo.epochs, ppo.minibatch, ppo.lr) == (128, 4, 256, 2.5e-4)
    assert (ppo.gamma, ppo.lam, ppo.clip) == (0.99, 0.95, 0.2)
    assert (ppo.value_scale, ppo.entropy, ppo.grad_norm, ppo.value_clip, ppo.features) == (0.5, 0.03, 0.5, 0.0, 512)


def test_later_presets_win():
    config = stacked(["mario_ppo", "explore"])
    assert (config.ppo.entropy, config.ppo.lr, config.envs.count) == (0.05, 1e-4, 32)
    assert stacked(["explore", "mario_ppo"]).ppo.entropy == 0.03


def test_unknown_preset_names_the_nearest():
    with pytest.raises(UserError, match="unknown preset 'mario_pp': did you mean mario_ppo"):
        stacked(["mario_pp"])


def test_a_file_of_ones_own_stacks_the_same_way(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("configs: [atari_ppo, explore]\nppo:\n  lr: 1e-3\nenvs.count: 2\n")
    config = stacked([str(path), "fast"])
    assert (config.task, config.ppo.entropy, config.ppo.lr, config.envs.count) == ("atari_pong", 0.05, 1e-3, 2)
    assert config.run.steps == 1_000_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ppo:\n  lrr: 1", "did you mean --ppo.lr"),
        ("ppo: [", "is not YAML"),
        ("- a", "must map options to values"),
        ("ppo.lr: soon", "takes a number"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(tmp_path, text, words):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        stacked([str(path)])
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_build_on_one_another_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("configs: [cartpole_ppo, b.yaml]")
    Path("b.yaml").write_text("configs: a.yaml")
    Path("c.yaml").write_text("configs: [./c.yaml]")
    for name, way in (("a.yaml", "a.yaml -> b.yaml -> a.yaml"), ("c.yaml", "c.yaml -> c.yaml")):
        with pytest.raises(UserError, match=f"{name} builds on itself by way of its 'configs': {way}$"):
            reverie.configure(name)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match="no preset file"):
        stacked([str(tmp_path / "none.yaml")])


def test_presets_do_not_touch_the_base():
    base = Config()
    stacked(["debug"], base)
    assert base == Config()
