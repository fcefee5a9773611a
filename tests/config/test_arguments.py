"""The words of the command line."""

import pytest

from reverie.cli import resolve
from reverie.config.arguments import PlayArguments, parse
from reverie.config.errors import UserError


def config_of(line: str):
    return resolve(line.split())[0]


def test_the_default_is_cartpole_and_a_task_alone_is_not():
    assert config_of("").ppo.epochs == 10
    assert config_of("--task gym_Pendulum-v1").ppo.epochs == 4


def test_the_commands_of_other_projects_work():
    config = config_of("--configs mario_ppo explore --logdir ./l/t --batch_size 32 --learning_rate 1e-4")
    assert (config.task, config.ppo.minibatch, config.ppo.lr, config.logdir) == ("mario_1-1", 32, 1e-4, "./l/t")
    assert config_of("--configs defaults debug").run.steps == 512


@pytest.mark.parametrize(
    ("env_id", "task"),
    [
        ("Atari-Pong", "atari_pong"),
        ("Atari-MsPacman", "atari_ms_pacman"),
        ("CartPole-v1", "gym_CartPole-v1"),
        ("MiniGrid-Empty-5x5-v0", "minigrid_Empty-5x5-v0"),
        ("DMC-walker_walk", "dmc_walker_walk"),
        ("crafter_reward", "crafter_reward"),
        ("my_module:MyEnv", "my_module:MyEnv"),
    ],
)
def test_environment_ids_of_other_projects(env_id, task):
    assert config_of(f"--env_id {env_id}").task == task


def test_flags_and_equals_signs():
    config = config_of("--ppo.lr_anneal --ppo.lr=0.1 --ppo.normalize_reward False --run.stop-at -5")
    assert (config.ppo.lr_anneal, config.ppo.lr, config.ppo.normalize_reward, config.run.stop_at) == (
        True,
        0.1,
        False,
        -5,
    )


def test_play_takes_all_of_the_guides_options():
    line = "--logdir d --episodes 3 --checkpoint latest.pt --stochastic --save-gif --gif-fps 30 --gif-dir g"
    assert parse(line.split(), PlayArguments) == PlayArguments("d", 3, "latest.pt", True, True, 30, "g")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--ppo.lr", "--ppo.lr needs a value"),
        ("--lerning_rate 1", "unknown option --lerning_rate"),
        ("pong", "unexpected 'pong'"),
        ("--resume", "--resume needs --logdir"),
        ("--seed one", "--seed takes a whole number, not 'one'"),
    ],
)
def test_wrong_words(line, words):
    with pytest.raises(UserError) as caught:
        config_of(line)
    assert words in str(caught.value)
