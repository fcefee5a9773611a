from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from reverie.config.schema import AtariConfig, EnvConfig
from reverie.envs.registry import Suite
from reverie.envs.suites.atari import SUITE, AtariGame, AtariVector, protocol
from waiting import until

STILL = AtariConfig(noops=0)
DREAMER = EnvConfig(atari=STILL)
PPO = EnvConfig(size=84, gray=True, stack=4, atari=STILL)


@pytest.fixture(autouse=True)
def _installed(installed: Callable[[Suite], Suite]) -> None:
    installed(SUITE)


def game(name: str, options: EnvConfig, training: bool = True) -> AtariGame:
    env = SUITE.make(name, options, training)
    assert isinstance(env, AtariGame)
    return env


def vector(name: str, options: EnvConfig, count: int = 2, training: bool = True) -> AtariVector:
    assert SUITE.make_vector is not None
    env = SUITE.make_vector(name, options, count, training)
    assert isinstance(env, AtariVector)
    return env


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("options", [EnvConfig(), PPO], ids=["dreamer", "ppo"])
def test_gymnasium_accepts_the_game(options: EnvConfig) -> None:
    check_env(game("pong", options))


def test_tasks_are_games_that_ale_can_play() -> None:
    names = SUITE.tasks()
    assert {"pong", "ms_pacman", "breakout"} <= set(names)
    assert not {"combat", "warlords"} & set(names)  # ALE exits the process when it loads them


def test_default_protocol_is_atari_100k() -> None:
    rules = protocol(EnvConfig(), training=True)
    assert (rules.repeat, rules.size, rules.gray, rules.stack, rules.limit) == (4, 64, False, 1, 27_000)
    assert protocol(EnvConfig(repeat=2), training=True).limit == 54_000
    assert rules.game.sticky == 0.0 and rules.game.noops == 30


@pytest.mark.parametrize("options", [DREAMER, PPO], ids=["dreamer", "ppo"])
@pytest.mark.parametrize("name", ["pong", "breakout"])
def test_one_game_and_the_vector_show_the_same(name: str, options: EnvConfig) -> None:
    one, many = game(name, options), vector(name, options, count=1)
    image, _ = one.reset(seed=3)
    rows, _ = many.reset(seed=3)
    assert rows["image"].shape == (1, *one.observation_space.shape)
    np.testing.assert_allclose(rows["image"][0], image, atol=1)
    random, total, over = np.random.default_rng(0), 0.0, False
    for _ in range(280):
        action = int(random.integers(one.action_space.n))
        image, reward, over, cut, info = one.step(action)
        rows, rewards, overs, cuts, infos = many.step(np.array([action]))
        assert (reward, over, cut, info["lives"]) == (rewards[0], overs[0], cuts[0], infos["lives"][0])
        if over:  # where a game ends among the skipped frames, ALE's vector shows frames of the step before
            break
        np.testing.assert_allclose(rows["image"][0].astype(int), image, atol=1)
        total += abs(reward)
    assert total > 0
    many.close()


def test_stack_begins_black_and_keeps_the_newest_last() -> None:
    env = game("breakout", PPO)
    first, _ = env.reset(seed=0)
    assert not first[..., :3].any() and first[..., 3].any()
    second = env.step(0)[0]
    np.testing.assert_array_equal(second[..., 2], first[..., 3])


def test_colours_are_stacked_along_the_channels() -> None:
    many = vector("pong", EnvConfig(stack=2, atari=STILL))
    first, _ = many.reset(seed=0)
    assert first["image"].shape == (2, 64, 64, 6)
    second = many.step(np.zeros(2, int))[0]["image"]
    np.testing.assert_array_equal(second[..., :3], first["image"][..., 3:])
    many.close()


def test_vector_images_are_views_without_a_copy() -> None:
    for options in (DREAMER, PPO):
        many = vector("pong", options)
        image = many.reset(seed=0)[0]["image"]
        assert not image.flags.owndata and many.observation_space.contains({"image": image})
        many.close()


def test_time_limit_is_a_truncation_of_one_game() -> None:
    env = game("pong", EnvConfig(time_limit=5))
    for _ in range(2):
        env.reset(seed=0)
        ends = [env.step(0)[2:4] for _ in range(5)]
        assert ends == [(False, False)] * 4 + [(False, True)]


@pytest.mark.parametrize("repeat", [1, 4])
def test_time_limit_is_a_truncation_of_the_vector(repeat: int) -> None:
    many = vector("pong", EnvConfig(time_limit=3, repeat=repeat))
    many.reset(seed=0)
    ends = [many.step(np.zeros(2, int)) for _ in range(8)]
    assert [bool(row[3].all()) for row in ends] == [False, False, True, False] * 2
    assert not any(row[2].any() for row in ends)
    many.close()


def test_time_limit_zero_is_endless() -> None:
    many, one = vector("pong", EnvConfig(time_limit=0)), game("pong", EnvConfig(time_limit=0))
    many.reset(seed=0)
    one.reset(seed=0)
    assert not any(many.step(np.zeros(2, int))[3].any() or one.step(0)[3] for _ in range(20))
    many.close()


def test_vector_resets_itself_on_the_next_step() -> None:
    many = vector("breakout", DREAMER)
    assert many.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    first, _ = many.reset(seed=0)
    over = np.zeros(2, bool)
    for _ in range(2000):
        image, _, over, _, _ = many.step(np.array([1, 1]))
        if over[0]:
            break
    assert over[0] and not np.array_equal(image["image"][0], first["image"][0])
    image, reward, over, cut, _ = many.step(np.array([1, 1]))
    np.testing.assert_array_equal(image["image"][0], first["image"][0])
    assert reward[0] == 0 and not over[0] and not cut[0]
    many.close()


@pytest.mark.parametrize(
    ("life_loss", "training", "marked"), [("terminal", True, 4), ("terminal", False, 0), ("ignore", True, 0)]
)
def test_lost_lives_are_marked_in_training_only(life_loss: str, training: bool, marked: int) -> None:
    options = EnvConfig(atari=AtariConfig(noops=0, life_loss=life_loss))
    one, many = game("breakout", options, training), vector("breakout", options, 1, training)
    one.reset(seed=0)
    many.reset(seed=0)
    lost = 0
    for step in range(2000):  # five lives: four losses go on, the fifth ends the episode
        action = step % 2
        _, _, over, _, info = one.step(action)
        _, _, overs, _, infos = many.step(np.array([action]))
        assert info["life_lost"] == infos["life_lost"][0]
        lost += info["life_lost"]
        if over:
            break
    assert over and overs[0] and lost == marked
    _, _, _, _, infos = many.step(np.array([0]))
    assert infos["lives"][0] == 5 and not infos["life_lost"].any()
    assert not infos["broken"].any() and infos["summary"] == [{}]
    many.close()


def test_breakout_waits_for_fire_after_a_lost_life() -> None:
    env = game("breakout", DREAMER)
    env.reset(seed=0)
    lives = [env.step(0)[4]["lives"] for _ in range(200)]
    assert lives[-1] == 4 and lives[60] == 4
    lives = [env.step(1)[4]["lives"] for _ in range(60)]
    assert lives[-1] < 4


def test_fire_after_a_lost_life_is_pressed_on_demand() -> None:
    options = EnvConfig(atari=AtariConfig(noops=0, fire_lives=True))
    env = game("breakout", options)
    env.reset(seed=0)
    lives = [env.step(0)[4]["lives"] for _ in range(90)]
    assert lives[-1] == 2  # idle, the agent loses ball after ball, where it would wait for ever
    vector = SUITE.make_vector("breakout", options, 2, True)
    vector.reset(seed=0)
    assert [vector.step(np.zeros(2, np.int64))[4]["lives"] for _ in range(90)][-1].max() == 2
    vector.close()


def test_fire_reset_starts_the_ball() -> None:
    for fires in (True, False):
        env = game("breakout", EnvConfig(atari=AtariConfig(noops=0, fire_reset=fires)))
        env.reset(seed=0)
        assert (env.step(0)[4]["lives"] == 5) and ([env.step(0)[4]["lives"] for _ in range(60)][-1] == 4) == fires


def test_rewards_are_not_clipped() -> None:
    one, many = game("space_invaders", DREAMER), vector("space_invaders", DREAMER, count=1)
    one.reset(seed=0)
    many.reset(seed=0)
    single, batched = [], []
    for step in range(150):
        single.append(one.step(step % 2)[1])
        batched.append(many.step(np.array([step % 2]))[1][0])
    assert max(single) >= 5 and single == batched
    many.close()


def test_seeds_repeat_idle_frames_and_sticky_actions() -> None:
    options = EnvConfig(atari=AtariConfig(sticky=0.5))
    env, many = game("pong", options), vector("pong", options)

    def images(seed: int) -> np.ndarray:
        frames = [env.reset(seed=seed)[0]] + [env.step(2 + step % 2)[0] for step in range(25)]
        return np.stack(frames)

    def batches(seed: int) -> np.ndarray:
        rows = [many.reset(seed=seed)[0]] + [many.step(np.full(2, 2 + step % 2))[0] for step in range(25)]
        return np.stack([row["image"] for row in rows])

    for show in (images, batches):
        np.testing.assert_array_equal(show(0), show(0))
        assert not np.array_equal(show(0), show(7))
        assert show(2**40).any()
    many.close()


@pytest.mark.parametrize("name", ["tennis", "time_pilot"])
def test_an_episode_does_not_depend_on_those_before(name: str) -> None:
    env = game(name, EnvConfig())

    def images() -> np.ndarray:
        return np.stack([env.reset(seed=4)[0]] + [env.step(step % 3)[0] for step in range(40)])

    first = images()
    for _ in range(33):
        env.step(1)
    np.testing.assert_array_equal(images(), first)


def test_vector_takes_one_seed_for_each_environment() -> None:
    many = vector("pong", EnvConfig(), count=3)
    spread = many.reset(seed=5)[0]["image"]
    listed = many.reset(seed=[5, 6, 7])[0]["image"]
    np.testing.assert_array_equal(spread, listed)
    same = many.reset(seed=[5, 5, 5])[0]["image"]
    np.testing.assert_array_equal(same[0], same[2])
    many.close()


def test_sticky_actions_change_what_happens() -> None:
    def images(sticky: float, seed: int) -> np.ndarray:
        env = game("pong", EnvConfig(atari=AtariConfig(noops=0, sticky=sticky)))
        env.reset(seed=seed)
        return np.stack([env.step(2 + step % 2)[0] for step in range(30)])

    np.testing.assert_array_equal(images(0.0, 1), images(0.0, 2))
    assert not np.array_equal(images(0.5, 1), images(0.5, 2))


def test_all_actions() -> None:
    options = EnvConfig(atari=AtariConfig(all_actions=True))
    many = vector("pong", options)
    assert game("pong", options).action_space.n == many.single_action_space.n == 18
    assert game("pong", EnvConfig()).action_space.n == 6
    many.close()


def test_render_shows_the_whole_screen() -> None:
    env = game("pong", PPO)
    env.reset(seed=0)
    screen = env.render()
    assert screen.shape == (210, 160, 3) and screen.dtype == np.uint8 and screen.any()


def test_games_run_while_the_caller_works() -> None:
    one, two = vector("pong", DREAMER, count=4), vector("pong", DREAMER, count=4)
    one.reset(seed=0)
    two.reset(seed=0)
    actions = np.full(4, 2)

    def worked() -> float:
        """Seconds that other threads of this process have computed; those in which they had to wait do not count."""
        return time.process_time() - time.thread_time()

    def work(call: Callable[[], object]) -> float:
        before = worked()
        call()
        return worked() - before

    least = min(work(lambda: one.step(actions)) for _ in range(40))
    for _ in range(40):
        before = worked()
        two.step_async(actions)
        until(lambda before=before: worked() - before > 0.25 * least)  # and nobody waits for them
        two.step_wait()
    plain, split = one.step(actions), two.step(actions)
    np.testing.assert_array_equal(plain[0]["image"], split[0]["image"])
    two.step_async(actions)
    two.close()
    one.close()
