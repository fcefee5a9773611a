"""The words of the command line."""

import pytest

from reverie.commands.learning import resolve
from reverie.config import names, store
from reverie.config.arguments import PlayArguments, parse
from reverie.config.errors import UserError
from reverie.config.options import options, replaced
from reverie.config.schema import Config


def config_of(line: str):
    return resolve(line.split())[0]


def test_the_default_is_cartpole_and_a_task_alone_is_not():
    default, named = config_of(""), config_of("--task gym_Pendulum-v1")
    assert (default.agent.name, default.task, default.replay.length) == ("dreamer", "gym_CartPole-v1", 16)
    assert (named.agent.name, named.ppo.epochs) == ("ppo", 4)


def test_the_commands_of_other_projects_work():
    config = config_of("--configs mario_ppo explore --logdir ./l/t --batch_size 32 --learning_rate 1e-4")
    assert (config.task, config.ppo.minibatch, config.ppo.lr, config.logdir) == ("mario_1-1", 32, 1e-4, "./l/t")
    assert config_of("--configs defaults debug").run.steps == 512


@pytest.mark.parametrize("way", ["--configs dreamer_v3", "--agent.name dreamer --task toy_catch", "--task toy_catch"])
def test_short_names_mean_what_the_agent_makes_of_them(way):
    config = config_of(f"{way} --batch_size 8 --learning_rate 1e-3 --gamma 0.9")
    mine = (config.replay.batch, config.optim.model.lr, config.behavior.gamma)
    ppo = (config.ppo.minibatch, config.ppo.lr, config.ppo.gamma)
    unset = (256, 2.5e-4, 0.99), (16, 4e-5, 1 - 1 / 333)
    assert (ppo, mine) == ((unset[0], (8, 1e-3, 0.9)) if "dreamer" in way else ((8, 1e-3, 0.9), unset[1]))


def test_short_names_of_dreamer():
    config = config_of("--configs dreamer_v3 --train_ratio 64 --batch_length 32 --imag_horizon 5 --discount 0.9")
    assert (config.replay.ratio, config.replay.length) == (64, 32)
    assert (config.behavior.horizon, config.behavior.gamma) == (5, 0.9)


def test_the_learning_rate_of_three_optimisers_is_the_models_alone(call):
    config = config_of("--configs dreamer_v2 --learning_rate 3e-4 --critic_lr 5e-4")
    assert (config.optim.model.lr, config.optim.actor.lr, config.optim.critic.lr) == (3e-4, 8e-5, 5e-4)
    assert config_of("--configs dreamer_v3 --learning_rate 3e-4").optim.joint
    assert "that of the world model alone where there are three" in " ".join(call("train", "--help")[1].split())


@pytest.mark.parametrize(
    ("line", "lr"),
    [
        ("--lr 1 --ppo.lr 2", 2),
        ("--ppo.lr 2 --lr 1", 1),
        ("--lr 1 --ppo.lr 2 --lr 3", 3),
        ("--lr 1 --learning_rate 2", 2),
    ],
)
def test_of_two_names_for_one_option_the_last_counts(line, lr):
    assert config_of(f"--task toy_catch {line}").ppo.lr == lr


def test_a_resumed_run_decides_by_its_own_agent(tmp_path):
    store.save(replaced(Config(), {"agent.name": "dreamer"}), tmp_path)
    config, resumed = resolve(["--resume", "--logdir", str(tmp_path), "--batch_size", "8"])
    assert resumed
    assert (config.replay.batch, config.ppo.minibatch) == (8, 256)


@pytest.mark.parametrize(("word", "meant"), sorted(names.meanings().items()))
def test_short_names_are_of_options_alike(word, meant):
    kinds = [options()[name].kind for name in meant.values()]
    assert all(kind in (int, float) for kind in kinds), f"{word} must take one word, whatever it means"


@pytest.mark.parametrize(
    ("env_id", "task"),
    [
        ("Atari-Pong", "atari_pong"),
        ("Atari-MsPacman", "atari_ms_pacman"),
        ("PongNoFrameskip-v4", "atari_pong"),
        ("MsPacmanNoFrameskip-v4", "atari_ms_pacman"),
        ("UpNDownNoFrameskip-v4", "atari_up_n_down"),
        ("ALE/Pong-v5", "gym_ALE/Pong-v5"),
        ("CartPole-v1", "gym_CartPole-v1"),
        ("MiniGrid-Empty-5x5-v0", "minigrid_Empty-5x5-v0"),
        ("DMC-walker_walk", "dmc_walker_walk"),
        ("crafter_reward", "crafter_reward"),
        ("my_module:MyEnv", "my_module:MyEnv"),
    ],
)
def test_environment_ids_of_other_projects(env_id, task):
    assert config_of(f"--env_id {env_id}").task == task


@pytest.mark.parametrize(("word", "value"), [("1", True), ("yes", True), ("0", False), ("off", False), ("", True)])
def test_flags_take_a_word_or_stand_alone(word, value):
    assert config_of(f"--ppo.lr_anneal {word} --seed 3").ppo.lr_anneal is value
    assert config_of(f"--env.gray {word} --seed 3").env.gray is value


def test_a_flag_that_may_be_undecided_can_be_given_back():
    assert config_of("--env.gray none --seed 3").env.gray is None


def test_flags_and_equals_signs():
    config = config_of("--ppo.lr_anneal --ppo.lr=0.1 --ppo.normalize_reward False --run.stop-at -5")
    assert (config.ppo.lr_anneal, config.ppo.lr, config.ppo.normalize_reward, config.run.stop_at) == (
        True,
        0.1,
        False,
        -5,
    )


@pytest.mark.parametrize(
    ("words", "policy"),
    [("True", "on_policy_ppo"), ("", "on_policy_ppo"), ("False", "imagined"), ("false", "imagined")],
)
def test_the_switch_between_dreams_and_ppo(words, policy):
    config = config_of(f"--configs atari debug --env_id Atari-Pong --ppo_on_policy {words}")
    assert (config.agent.name, config.agent.policy, config.task) == ("dreamer", policy, "atari_pong")


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        ("--ppo_on_policy True --agent.policy imagined", "imagined"),
        ("--agent.policy imagined --ppo_on_policy", "on_policy_ppo"),
        ("--ppo_on_policy=yes", "on_policy_ppo"),
        ("--ppo_on_policy True --configs atari explore", "on_policy_ppo"),
    ],
)
def test_the_last_word_on_the_policy_counts_and_presets_of_ppo_fit(words, policy):
    assert config_of(f"--configs atari {words}").agent.policy == policy


def test_the_switch_needs_a_world_model():
    with pytest.raises(UserError, match="--configs dreamer_v3"):
        config_of("--configs cartpole_ppo --ppo_on_policy True")


def test_options_of_ppo_are_used_by_a_dreamer_whose_policy_learns_so(caplog):
    config_of("--configs atari --ppo_on_policy True --ppo.lr 1e-3")
    assert not caplog.records
    config_of("--configs atari --ppo.lr 1e-3")
    assert "--ppo.lr does nothing here" in caplog.text


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        ("--ppo_on_policy True --ent_coef 0.1", "behavior.entropy"),
        ("--ppo_on_policy True --ppo.units 8", "ppo.units"),
        ("--agent.policy imagined_ppo --ppo.gamma 0.9", "ppo.gamma"),
        ("--agent.policy imagined_ppo --ppo.clip 0.1", ""),
        ("--ppo_on_policy True --ppo.gamma 0.9", ""),
        ("--behavior.entropy 0.1", ""),
    ],
)
def test_options_that_a_policy_does_not_use_are_pointed_out(words, idle, caplog):
    config_of(f"--configs atari {words}")
    assert [record.message.split()[0] for record in caplog.records] == ([f"--{idle}"] if idle else [])


def test_play_takes_all_of_the_guides_options():
    line = "--logdir d --episodes 3 --checkpoint latest.pt --stochastic --save-gif --gif-fps 30 --gif-dir g"
    assert parse(line.split(), PlayArguments) == PlayArguments("d", 3, "latest.pt", True, True, 30, "g")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--ppo.lr", "--ppo.lr needs a value"),
        ("--lerning_rate 1", "unknown option --lerning_rate"),
        (
            "--task toy_catch --train_ratio 8",
            "--train_ratio means nothing to the agent ppo: it is --replay.ratio of dreamer",
        ),
        (
            "--configs dreamer_v3 --clip_coef 1",
            "--clip_coef means nothing to the agent dreamer: it is --ppo.clip of ppo",
        ),
        ("--agent.name dremer --lr 1", "--agent.name is one of ppo, dreamer, random, not 'dremer'"),
        ("--batch_size", "--batch_size needs a value"),
        ("pong", "unexpected 'pong'"),
        ("--resume", "--resume needs --logdir"),
        ("--seed one", "--seed takes a whole number, not 'one'"),
    ],
)
def test_wrong_words(line, words):
    with pytest.raises(UserError) as caught:
        config_of(line)
    assert words in str(caught.value)
