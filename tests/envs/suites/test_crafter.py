from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from reverie.config.errors import UserError
from reverie.config.schema import CrafterConfig, EnvConfig
from reverie.envs.registry import Suite
from reverie.envs.suites.crafter import SUITE, CrafterEnv, make

SMALL = CrafterConfig(area=32)
"""A quarter of the usual world: making one takes most of a second."""


@pytest.fixture(autouse=True)
def _installed(installed: Callable[[Suite], Suite]) -> None:
    installed(SUITE)


def world(name: str = "reward", **options: Any) -> CrafterEnv:
    env = make(name, EnvConfig(crafter=SMALL, **options), True)
    assert isinstance(env, CrafterEnv)
    return env


def stream(env: CrafterEnv, seed: int, steps: int) -> tuple[list[np.ndarray], list[float], list[np.ndarray]]:
    random = np.random.default_rng(0)
    images, rewards, maps = [env.reset(seed=seed)[0]], [0.0], []
    for _ in range(steps):
        image, reward, terminated, _, _ = env.step(random.integers(17))
        assert not terminated
        images.append(image)
        rewards.append(reward)
        maps.append(env._game._world._obj_map.copy())
    return images, rewards, maps


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_it() -> None:
    check_env(make("reward", EnvConfig(crafter=CrafterConfig(area=16)), True), skip_render_check=True)


def test_same_seed_same_stream_even_where_creatures_are_drawn_at_random() -> None:
    first = stream(world(), 0, 60)
    clutter = [object() for _ in range(12345)]  # other memory addresses: creatures in sets would change places
    second = stream(world(), 0, 60)
    del clutter
    np.testing.assert_equal(first, second)


def test_seeds_and_episodes_differ() -> None:
    env = world()
    first, _ = env.reset(seed=0)
    following, _ = env.reset()
    other, _ = env.reset(seed=1)
    again, _ = env.reset(seed=0)
    assert not np.array_equal(first, following) and not np.array_equal(first, other)
    np.testing.assert_array_equal(first, again)


def test_drawing_does_not_change_the_world() -> None:
    first, second = world(), world()
    for env in (first, second):
        env.reset(seed=2)
        env._game._step = 250  # night, when pictures have noise
    for _ in range(5):
        assert first.render().shape == (288, 288, 3)
        np.testing.assert_array_equal(first.step(0)[0], second.step(0)[0])


def test_time_out_is_a_truncation_with_a_summary() -> None:
    env = world(time_limit=3)
    env.reset(seed=0)
    steps = [env.step(0) for _ in range(3)]
    assert [step[2:4] for step in steps] == [(False, False)] * 2 + [(False, True)]
    assert "summary" not in steps[1][4]
    summary = steps[2][4]["summary"]
    assert len(summary) == 22 and set(summary.values()) == {0.0}


def test_usual_limit_is_ten_thousand_frames_and_counts_repeats() -> None:
    assert world()._game._length == 10_000
    assert world(time_limit=500, repeat=4)._game._length == 2000
    assert world(time_limit=0)._game._length == 0


def test_death_is_a_real_end_even_at_the_limit() -> None:
    env = world(time_limit=1)
    env.reset(seed=0)
    env._game._player.health = 0
    terminated, truncated = env.step(0)[2:4]
    assert (terminated, truncated) == (True, False)


def test_achievements_of_the_episode_are_reported() -> None:
    env = world(time_limit=2)
    env.reset(seed=0)
    env._game._player.inventory["sapling"] = 1
    env._game._world[env._game._player.pos + env._game._player.facing] = "grass"
    _, reward, _, _, _ = env.step(env._game.action_names.index("place_plant"))
    assert reward == pytest.approx(1.0)
    summary = env.step(0)[4]["summary"]
    assert summary["achievement/place_plant"] == 1.0 and sum(summary.values()) == 1.0


def test_infos_and_images_are_never_shared() -> None:
    env = world()
    first, info = env.reset(seed=0)
    kept = first.copy()
    second, _, _, _, other = env.step(1)
    assert info is not other and not np.shares_memory(first, second)
    assert second.flags.c_contiguous
    np.testing.assert_array_equal(first, kept)


def test_without_reward_nothing_is_paid() -> None:
    env = world("noreward")
    env.reset(seed=0)
    env._game._player.health = 5
    assert env.step(0)[1] == 0.0


def test_size_and_area_are_obeyed() -> None:
    assert world(size=96).reset(seed=0)[0].shape == (96, 96, 3)
    assert make("reward", EnvConfig(), True).observation_space.shape == (64, 64, 3)
    with pytest.raises(UserError, match="at least 9"):
        make("reward", EnvConfig(crafter=CrafterConfig(area=5)), True)
