"""What a sweep varies: read from files and words, checked against the options."""

import pytest
import yaml

from reverie.config.errors import UserError
from reverie.config.presets import stacked
from reverie.config.space import Dimension, combinations, from_file, from_values, from_words, plain, restored

PPO = stacked(["cartpole_ppo"])
DREAMER = stacked(["cartpole"])


def test_a_file_may_be_dotted_nested_or_short(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "lr: {low: 1e-5, high: 1e-2, log: true}\n"
        "ppo:\n  epochs: {low: 2, high: 16}\n  entropy: {low: 0, high: 0.05, step: 0.01}\n"
        "ppo.cnn: [nature, small]\nppo.lr_anneal: {choices: [true, false]}\nnum_envs: [4, 8]\n"
    )
    assert from_file(path, PPO) == {
        "ppo.lr": Dimension(1e-5, 1e-2, log=True),
        "ppo.epochs": Dimension(2, 16, whole=True),
        "ppo.entropy": Dimension(0.0, 0.05, step=0.01),
        "ppo.cnn": Dimension(choices=("nature", "small")),
        "ppo.lr_anneal": Dimension(choices=(True, False)),
        "envs.count": Dimension(choices=(4, 8)),
    }


def test_short_names_are_the_agents():
    assert list(from_values({"lr": [1e-4]}, DREAMER)) == ["optim.model.lr"]


def test_words_make_a_grid():
    space = from_words(["seed=0,1,2", "ppo.lr=1e-4,3e-4", "env.time_limit=none,50"], PPO)
    assert [each["ppo.lr"] for each in combinations(space)][:4] == [1e-4, 1e-4, 3e-4, 3e-4]
    assert len(combinations(space)) == 12
    assert combinations(space)[0] == {"seed": 0, "ppo.lr": 1e-4, "env.time_limit": None}


def test_ranges_that_can_be_counted_are_a_grid_too():
    space = from_values({"ppo.epochs": {"low": 2, "high": 4}, "ppo.lam": {"low": 0.9, "high": 1, "step": 0.05}}, PPO)
    values = [each.values() for each in space.values()]
    assert values == [[2, 3, 4], [0.9, pytest.approx(0.95), pytest.approx(1.0)]]
    assert Dimension(2, 16, log=True, whole=True).values() == []


def test_a_space_is_written_and_read():
    space = from_values({"lr": {"low": 1e-5, "high": 1e-2, "log": True}, "ppo.cnn": ["small"], "seed": [1]}, PPO)
    assert restored(yaml.safe_load(yaml.safe_dump(plain(space)))) == space


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"ppo.lrr": [1]}, "unknown option --ppo.lrr: did you mean --ppo.lr"),
        ({"learning_rat": [1]}, "did you mean --learning_rate"),
        ({"horizon": [1]}, "means nothing to the agent ppo"),
        ({"ppo.lr": {"low": 1, "hihg": 2}}, "unknown word 'hihg': did you mean high"),
        ({"ppo.lr": {"low": 1}}, "needs low and high"),
        ({"ppo.lr": 1}, "needs low and high, or a list"),
        ({"ppo.lr": []}, "needs low and high, or a list"),
        ({"ppo.lr": {"low": 2, "high": 1}}, "low (2.0) must be less than high (1.0)"),
        ({"ppo.lr": {"low": 0, "high": 1, "log": True}}, "above 0 for log"),
        ({"ppo.lr": {"low": -1, "high": 1}}, "--ppo.lr is -1: it must be at least 0"),
        ({"ppo.lr": {"low": "a", "high": 1}}, "--ppo.lr takes a number"),
        ({"ppo.lr": {"low": 1e-4, "high": 1, "log": "maybe"}}, "True or False"),
        ({"ppo.epochs": {"low": 1.5, "high": 3}}, "takes a whole number"),
        ({"ppo.epochs": {"low": 1, "high": 3, "step": 0}}, "step must be above 0"),
        ({"ppo.epochs": {"low": 1, "high": 3, "choices": [1]}}, "has choices and a range"),
        ({"ppo.cnn": {"low": 1, "high": 2}}, "ppo.cnn is no number"),
        ({"ppo.cnn": ["large"]}, "--ppo.cnn is one of"),
        ({"ppo.lr": [1e-4, "1e-4"]}, "lists a value twice"),
        ({"ppo.lr": [1], "lr": [2]}, "one option has two names"),
        ({"imports": ["a"]}, "imports needs"),
        ({"logdir": ["a"]}, "cannot vary logdir"),
        ({"run.eval_every": [1]}, "cannot vary run.eval_every"),
        ({}, "the space is empty"),
    ],
)
def test_wrong_spaces_are_told_in_a_line(values, words, tmp_path):
    with pytest.raises(UserError) as caught:
        from_values(values, PPO)
    assert words in str(caught.value)
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(UserError, match=r"space\.yaml"):
        from_file(path, PPO)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ppo.lr"], "write NAME=VALUE"),
        (["ppo.lr="], "write NAME=VALUE"),
        (["ppo.lr=1", "lr=2"], "names ppo.lr twice"),
        (["none.yaml"], "no file none.yaml"),
    ],
)
def test_wrong_words_are_told_in_a_line(words, told):
    with pytest.raises(UserError, match=told):
        from_words(words, PPO)


def test_a_grid_cannot_have_a_range():
    with pytest.raises(UserError, match=r"ppo\.lr is a range"):
        combinations(from_values({"ppo.lr": {"low": 0.1, "high": 1}}, PPO))
