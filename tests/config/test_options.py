"""Options by dotted name: typed, checked, and the same from every side."""

import dataclasses

import pytest

from reverie.config.errors import UserError
from reverie.config.options import flattened, options, replaced
from reverie.config.schema import Config


def test_every_option_has_a_line_of_help():
    assert not [name for name, option in options().items() if not option.help.endswith(".") or "  " in option.help]


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().ppo.lr = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("ppo.lr", "1e-4", 1e-4),
        ("ppo.lr", 1, 1.0),
        ("run.steps", "1e6", 1_000_000),
        ("run.steps", "10_000", 10_000),
        ("ppo.lr_anneal", "false", False),
        ("ppo.lr_anneal", True, True),
        ("env.size", "none", None),
        ("env.size", "64", 64),
        ("env.dmc.observation", "vision", "vision"),
        ("imports", "one,two", ("one", "two")),
        ("imports", ["one", "two"], ("one", "two")),
        ("run.stop_at", "475", 475.0),
    ],
)
def test_values_become_typed(name, given, value):
    got = flattened(replaced(Config(), {name: given}))[name]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("ppo.lr", "fast", "--ppo.lr takes a number, not 'fast'"),
        ("ppo.lr", "nan", "--ppo.lr takes a number"),
        ("run.steps", "1.5", "--run.steps takes a whole number"),
        ("run.steps", True, "--run.steps takes a whole number"),
        ("ppo.lr_anneal", "maybe", "--ppo.lr_anneal takes True or False"),
        ("envs.backend", "threads", "one of auto, serial, process, native"),
        ("task", 3, "--task takes text"),
        ("ppo.lrr", "1", "did you mean --ppo.lr"),
        ("rollout", "1", "did you mean --ppo.rollout"),
        ("ppo", "1", "unknown option --ppo"),
        ("world.grad_heads", None, "--world.grad_heads takes a list, not None"),
        ("imports", 3, "--imports takes a list, not 3"),
    ],
)
def test_wrong_values_say_what_is_right(name, given, words):
    with pytest.raises(UserError) as caught:
        replaced(Config(), {name: given})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flattened_values_make_the_same_config():
    config = replaced(Config(), {"ppo.lr": 0.5, "imports": "a b", "env.size": 32})
    assert replaced(Config(), flattened(config)) == config
