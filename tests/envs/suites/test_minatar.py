from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig, MinatarConfig
from reverie.envs.registry import Suite
from reverie.envs.suites.minatar import GAMES, SUITE, MinatarEnv, make, palette


@pytest.fixture(autouse=True)
def _installed(installed: Callable[[Suite], Suite]) -> None:
    installed(SUITE)


def game(name: str, **options: Any) -> MinatarEnv:
    env = make(name, EnvConfig(**options), True)
    assert isinstance(env, MinatarEnv)
    return env


def stream(env: MinatarEnv, seed: int, steps: int) -> list[Any]:
    random = np.random.default_rng(0)
    found: list[Any] = [env.reset(seed=seed)[0]["image"]]
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(random.integers(env.action_space.n))
        found += [observation["image"], reward, terminated, truncated]
        if terminated or truncated:
            found.append(env.reset()[0]["image"])
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", GAMES)
def test_gymnasium_accepts_all_games(name: str) -> None:
    check_env(game(name), skip_render_check=True)


@pytest.mark.parametrize("name", GAMES)
def test_same_seed_same_stream_whatever_was_played_before(name: str) -> None:
    env = game(name)
    first = stream(env, 5, 150)
    stream(env, 6, 33)
    np.testing.assert_equal(first, stream(env, 5, 150))
    np.testing.assert_equal(first, stream(game(name), 5, 150))


def test_no_action_sticks_from_the_episode_before() -> None:
    env = game("breakout", minatar=MinatarConfig(sticky=0.0))
    env.reset(seed=0)
    env.step(2)
    env._sticky = 1.0
    env.reset(seed=0)
    start = env._game.pos
    env.step(2)
    assert env._game.pos == start


def test_starts_follow_the_seed() -> None:
    env = game("breakout")
    starts = {env.reset(seed=seed)[0]["image"][..., 1].tobytes() for seed in range(12)}
    assert len(starts) == 2  # the ball starts on the left or on the right


@pytest.mark.parametrize("name", GAMES)
def test_plays_as_minatar_itself(name: str) -> None:
    from minatar import Environment

    ours = game(name, minatar=MinatarConfig(sticky=0.3))
    image = ours.reset(seed=1)[0]["image"]
    theirs = Environment(name, sticky_action_prob=0.3)
    theirs.env.__dict__.update(copy.deepcopy(ours._game.__dict__))
    theirs.random = theirs.env.random
    random = np.random.default_rng(0)
    for _ in range(200):
        np.testing.assert_array_equal(image, theirs.state() * 255)
        action = int(random.integers(ours.action_space.n))
        observation, reward, terminated, _, _ = ours.step(action)
        assert (reward, terminated) == theirs.act(theirs.minimal_action_set()[action])
        image = observation["image"]
        if terminated:
            break


def test_observation_is_an_image_of_zeros_and_255() -> None:
    env = game("seaquest")
    image = env.reset(seed=0)[0]["image"]
    assert image.shape == (10, 10, 10) and image.dtype == np.uint8
    assert set(np.unique(image)) == {0, 255}


def test_minimal_actions_only() -> None:
    assert {name: game(name).action_space.n for name in GAMES} == {
        "asterix": 5,
        "breakout": 3,
        "freeway": 3,
        "seaquest": 6,
        "space_invaders": 4,
    }


def test_size_enlarges_cells_without_blending() -> None:
    small, large = game("breakout"), game("breakout", size=64)
    cells, image = small.reset(seed=0)[0]["image"], large.reset(seed=0)[0]["image"]
    assert image.shape == (64, 64, 4) and set(np.unique(image)) == {0, 255}
    middles = (np.arange(10) + 0.5) * 6.4
    np.testing.assert_array_equal(image[np.ix_(middles.astype(int), middles.astype(int))], cells)


def test_gray_is_refused() -> None:
    with pytest.raises(UserError, match=r"leave out --env\.gray"):
        game("breakout", gray=True)


def test_death_is_a_real_end_and_the_limit_a_truncation() -> None:
    env = game("breakout", minatar=MinatarConfig(sticky=0.0))
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(9)]
    assert ends[0] == (False, False) and ends[-1] == (True, False)
    env = game("freeway")
    env.reset(seed=0)
    env._steps = 4998
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]
    assert game("freeway", time_limit=0)._limit == 0


def test_observations_are_never_shared() -> None:
    env = game("asterix")
    first = env.reset(seed=0)[0]["image"]
    kept = first.copy()
    second = env.step(1)[0]["image"]
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)


def test_picture_has_one_colour_per_kind() -> None:
    env = game("breakout")
    env.reset(seed=0)
    picture = env.render()
    colours = palette(4)
    assert picture.shape == (160, 160, 3) and len(np.unique(colours, axis=0)) == 5
    np.testing.assert_array_equal(picture[16, 0], colours[4])  # a brick
    np.testing.assert_array_equal(picture[159, 4 * 16], colours[1])  # the paddle


def test_games_load_without_the_plotting_packages() -> None:
    code = (
        "import sys; from reverie.config.schema import EnvConfig; from reverie.envs.suites.minatar import make;"
        "make('breakout', EnvConfig(), True).reset(seed=0);"
        "print(sorted({'matplotlib', 'seaborn', 'pandas', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]" and not done.stderr
