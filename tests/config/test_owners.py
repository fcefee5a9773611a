"""What is set for another agent than the run's is refused or pointed out."""

import logging

import pytest

import reverie
from reverie.commands.learning import resolve
from reverie.config import store
from reverie.config.errors import UserError
from reverie.config.options import options
from reverie.config.owners import OWNERS, owner
from reverie.config.presets import PRESETS


def config_of(line: str):
    return resolve(line.split())[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--configs cartpole explore", "preset 'explore' does nothing for the agent dreamer: it sets options of ppo"),
        ("--configs explore cartpole", "preset 'explore' does nothing"),
        ("--configs dreamer_v3,explore --task toy_catch", "preset 'explore' does nothing"),
        ("--configs cartpole_ppo 50m", "preset '50m' does nothing for the agent ppo: it sets options of dreamer"),
        ("--configs explore --agent.name dreamer", "preset 'explore' does nothing"),
        ("--configs cartpole mine.yaml", "preset 'mine.yaml' does nothing for the agent dreamer"),
        ("--configs cartpole above.yaml", "preset 'explore' does nothing"),
    ],
)
def test_a_preset_of_another_agent_is_refused(line, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("ppo: {lr: 1e-4}\nppo.clip: 0.1\n")
    (tmp_path / "above.yaml").write_text("configs: explore\nppo.lr: 1e-4\n")
    with pytest.raises(UserError) as caught:
        config_of(line)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "--configs mario_ppo explore",
        "--configs cartpole fast debug defaults",
        "--configs cartpole_ppo fast",
        "--configs cartpole explore --agent.name ppo",
        "--configs cartpole_ppo explore --agent.name random",
        "--configs crafter 50m",
    ],
)
def test_presets_that_do_something_are_not(line):
    config_of(line)


def test_python_and_resumed_runs_are_told_the_same(tmp_path):
    with pytest.raises(UserError, match="preset 'explore' does nothing"):
        reverie.configure("cartpole", "explore")
    store.save(reverie.configure("cartpole"), tmp_path)
    with pytest.raises(UserError, match="preset 'explore' does nothing"):
        config_of(f"--resume --configs explore --logdir {tmp_path}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--ppo.lr 1e-4", ["--ppo.lr does nothing here: the agent is dreamer, not ppo"]),
        ("--task toy_catch --replay.ratio 8", ["--replay.ratio does nothing here: the agent is ppo, not dreamer"]),
        ("--configs dreamer_v3 --actor_lr 1e-4", ["--optim.actor.lr does nothing here: one optimiser does it all"]),
        ("--configs dreamer_v2 --actor_lr 1e-4", []),
        ("--configs dreamer_v3 --optim.joint False --actor_lr 1e-4", []),
        ("--configs dreamer_v3 --learning_rate 1e-4 --run.steps 5", []),
        ("--agent.name random --ppo.lr 1e-4", []),
    ],
)
def test_single_options_that_do_nothing_are_pointed_out(line, words, caplog):
    with caplog.at_level(logging.WARNING, "reverie"):
        config_of(line)
    assert len(caplog.messages) == len(words)
    assert all(told.startswith(each) for told, each in zip(caplog.messages, words))


def test_every_group_of_options_has_an_owner_or_is_for_all():
    groups = {name.partition(".")[0] for name in options() if "." in name}
    assert groups - set(OWNERS) == {"agent", "run", "env", "envs", "collect", "store", "log"}
    assert set(OWNERS) <= groups


def test_presets_that_name_a_task_choose_their_agent_too():
    for name, preset in PRESETS.items():
        owners = {owner(each) for each in preset.values} - {None}
        if "task" in preset.values:
            assert owners == {preset.values.get("agent.name", "ppo")}, name
