"""Exploring from the command line: who is shown, and what is told when something does not fit."""

import json
import logging

import pytest
import torch

import reverie
from reverie.commands.learning import resolve
from reverie.training import checkpoint


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """The folder of a run whose explorer always answers 0 and whose task behaviour 1, to a cue that must be matched."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    options = {"task": "toy_memory", "run__steps": 200, "run__eval_every": 0, "log__tensorboard": False}
    reverie.train(reverie.configure("dreamer_v3", "plan2explore", "debug", logdir=str(folder), **options), quiet=True)
    file = folder / "checkpoints" / "latest.pt"
    saved = checkpoint.load(file)
    for answer, part in enumerate(("explorer", "behavior")):
        saved["agent"]["module"][f"{part}.actor.1.bias"].copy_(torch.eye(2)[answer] * 100)
    checkpoint.save(file, saved)
    return folder


def test_eval_shows_the_explorer_on_demand(call, explored):
    words = ["eval", "--logdir", str(explored), "--checkpoint", "latest", "--episodes", "5", "--json"]
    plain, shown = (json.loads(call(*words, *extra)[1])["mean_return"] for extra in ([], ["--explorer"]))
    assert plain == -shown != 0  # five cues: where one is right the other is wrong


def test_play_shows_it_too(call, explored, tmp_path):
    words = ["play", "--logdir", str(explored), "--checkpoint", "latest", "--episodes", "1", "--save-gif"]
    found = [call(*words, "--gif-dir", str(tmp_path), *extra)[1].split(",")[0] for extra in ([], ["--explorer"])]
    assert sorted(found) == ["episode 1: return -1.0", "episode 1: return 1.0"]


def test_a_run_without_one_is_told(call, trained):
    for command in ("eval", "play"):
        status, _, err = call(command, "--logdir", str(trained), "--explorer")
        assert status == 2 and "--explorer: the run in" in err and "plan2explore" in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--configs plan2explore --task toy_corridor", "preset 'plan2explore' does nothing for the agent ppo"),
        ("--configs dreamer_v3 --explore.members 1", "--explore.members is 1: it must be at least 2"),
        ("--configs dreamer_v3 --explore.target latent", "--explore.target is one of embed, stoch, deter, feature"),
        ("--configs cartpole_ppo --explore_until 5", "--explore_until means nothing to the agent ppo"),
    ],
)
def test_what_does_not_fit_is_one_line(line, words):
    with pytest.raises(reverie.UserError) as caught:
        resolve(line.split())
    assert words in str(caught.value)


def test_options_without_an_explorer_are_pointed_out(caplog):
    with caplog.at_level(logging.WARNING, "reverie"):
        resolve(["--configs", "dreamer_v3", "--explore_until", "100"])
        resolve(["--configs", "dreamer_v3", "plan2explore", "--explore_until", "100"])
    (line,) = caplog.messages
    assert line.startswith("--explore.until does nothing here: there is no explorer")


def test_the_size_of_the_explorer_is_told(call, tmp_path):
    words = "--configs corridor plan2explore debug --run.steps 8 --run.eval_at_end False --log.display plain"
    status, out, _ = call("train", *words.split(), "--logdir", str(tmp_path / "run"))
    assert status == 0 and ", explorer " in out
