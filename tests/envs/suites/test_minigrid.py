from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from reverie.config.schema import EnvConfig, MinigridConfig
from reverie.envs.registry import Suite
from reverie.envs.suites.minigrid import SUITE, WORDS, make, one_hot, word_counts

VIEWS = ("symbolic", "rgb", "full_rgb")


@pytest.fixture(autouse=True)
def _installed(installed: Callable[[Suite], Suite]) -> None:
    installed(SUITE)


def world(name: str, view: Any = "symbolic", **options: Any) -> gymnasium.Env:
    return make(name, EnvConfig(minigrid=MinigridConfig(view=view), **options), True)


def stream(env: gymnasium.Env, seed: int, steps: int) -> list[Any]:
    random = np.random.default_rng(0)
    found: list[Any] = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(random.integers(7))
        found += [observation, reward, terminated, truncated]
        if terminated or truncated:
            found.append(env.reset()[0])
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["Empty-5x5-v0", "DoorKey-6x6-v0"])
def test_gymnasium_accepts_all_views(name: str, view: str) -> None:
    check_env(world(name, view), skip_render_check=True, skip_close_check=True)


@pytest.mark.parametrize("view", VIEWS)
def test_same_seed_same_stream(view: str) -> None:
    first, second, other = (stream(world("MultiRoom-N2-S4-v0", view), seed, 50) for seed in (1, 1, 2))
    np.testing.assert_equal(first, second)
    with pytest.raises(AssertionError):
        np.testing.assert_equal(first, other)


def test_names_of_both_families() -> None:
    names = SUITE.tasks()
    assert {"Empty-5x5-v0", "BabyAI-GoToObj-v0"} <= set(names)
    assert not [name for name in names if name.startswith("MiniGrid-") or "WFC" in name]
    assert world("Empty-5x5-v0").unwrapped.spec.id == "MiniGrid-Empty-5x5-v0"  # type: ignore[union-attr]
    assert world("BabyAI-GoToObj-v0").unwrapped.spec.id == "BabyAI-GoToObj-v0"  # type: ignore[union-attr]


def test_symbolic_view_is_a_vector_that_says_what_the_codes_say() -> None:
    env = world("DoorKey-6x6-v0")
    observation, _ = env.reset(seed=0)
    assert observation["grid"].shape == (7 * 7 * 20,) and observation["grid"].dtype == np.float32
    codes = env.unwrapped.gen_obs()["image"]  # type: ignore[attr-defined]
    cells = observation["grid"].reshape(7, 7, 20)
    parts = [cells[..., :11], cells[..., 11:17], cells[..., 17:]]
    for kind, part in enumerate(parts):
        np.testing.assert_array_equal(part.argmax(-1), codes[..., kind])
        np.testing.assert_array_equal(part.sum(-1), 1)


def test_one_hot_of_one_cell() -> None:
    locked_yellow_door = one_hot(np.array([[[4, 4, 2]]], np.uint8))
    assert np.flatnonzero(locked_yellow_door).tolist() == [4, 11 + 4, 17 + 2]


@pytest.mark.parametrize(("view", "size"), [("rgb", None), ("rgb", 56), ("full_rgb", 84)])
def test_pictures_have_the_size_asked_for(view: str, size: int | None) -> None:
    env = world("Empty-5x5-v0", view, size=size)
    observation, _ = env.reset(seed=0)
    assert observation["image"].shape == (size or 64, size or 64, 3) and "grid" not in observation
    if size == 56:
        np.testing.assert_array_equal(observation["image"], env.unwrapped.get_pov_render(8))  # type: ignore[attr-defined]


def test_whole_grid_need_not_be_square() -> None:
    observation, _ = world("LockedRoom-v0", "full_rgb").reset(seed=0)
    assert observation["image"].shape == (64, 64, 3)
    observation, _ = world("BlockedUnlockPickup-v0", "full_rgb").reset(seed=0)  # 11 by 6 cells
    assert observation["image"].shape == (64, 64, 3)


def test_direction_follows_turns() -> None:
    env = world("Empty-5x5-v0")
    assert env.reset(seed=0)[0]["direction"] == 0
    assert [int(env.step(1)[0]["direction"]) for _ in range(4)] == [1, 2, 3, 0]


def test_mission_counts_words_and_keeps_a_place_for_others() -> None:
    counts = word_counts("go to the red ball, then go to the teapot")
    found = {word: int(count) for word, count in zip([*WORDS, "?"], counts) if count}
    assert found == {"go": 2, "to": 2, "the": 2, "red": 1, "ball": 1, "then": 1, "?": 1}


def test_vocabulary_covers_the_missions() -> None:
    for name in ("BabyAI-BossLevel-v0", "RedBlueDoors-6x6-v0", "MemoryS7-v0", "PutNear-6x6-N2-v0", "LavaGapS5-v0"):
        env = world(name)
        for seed in range(5):
            mission = env.reset(seed=seed)[0]["mission"]
            assert mission[-1] == 0 and mission.sum() > 0


def test_goal_is_a_success_and_a_real_end() -> None:
    env = world("Empty-5x5-v0")
    env.reset(seed=0)
    steps = [env.step(action) for action in (2, 2, 1, 2, 2)]
    assert [step[2:4] for step in steps] == [(False, False)] * 4 + [(True, False)]
    assert steps[-1][1] > 0 and steps[-1][4]["summary"] == {"success": 1.0}
    assert "summary" not in steps[0][4]


def test_lava_is_a_real_end_without_success() -> None:
    env = world("DistShift1-v0")
    env.reset(seed=0)
    steps = [env.step(2) for _ in range(2)]  # the lava is the third cell on the agent's row
    assert [step[2:4] for step in steps] == [(False, False), (True, False)]
    assert steps[-1][4]["summary"] == {"success": 0.0}


def test_limits_are_truncations_and_report_failure() -> None:
    env = world("Empty-5x5-v0", time_limit=2, repeat=2)
    env.reset(seed=0)
    steps = [env.step(0) for _ in range(4)]
    assert [step[2:4] for step in steps] == [(False, False)] * 3 + [(False, True)]
    assert steps[-1][4]["summary"] == {"success": 0.0}
    env = world("Empty-5x5-v0")
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(100)]
    assert ends == [(False, False)] * 99 + [(False, True)]


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    env = world("BabyAI-PutNextLocal-v0")
    for seed in range(20):
        env.reset(seed=seed)
    assert capsys.readouterr().out == ""


def test_observations_are_never_shared() -> None:
    env = world("Empty-5x5-v0")
    first, _ = env.reset(seed=0)
    kept = {key: np.copy(value) for key, value in first.items()}
    second = env.step(2)[0]
    assert not any(np.shares_memory(first[key], second[key]) for key in ("grid", "mission"))
    second["mission"][:] = 7
    np.testing.assert_equal(first, kept)
    assert env.step(2)[0]["mission"].max() < 7


def test_picture_for_videos() -> None:
    env = world("Empty-5x5-v0")
    env.reset(seed=0)
    assert env.render().shape == (160, 160, 3)
