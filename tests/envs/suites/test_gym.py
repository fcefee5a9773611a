from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig
from reverie.envs.registry import Suite, extra
from reverie.envs.suites.gym import SUITE, make, make_vector

Installed = Callable[[Suite], Suite]
BOX2D = replace(SUITE, needs=("Box2D",), install=extra("box2d"))
MUJOCO = replace(SUITE, needs=("mujoco",), install=extra("mujoco"))
ALE = replace(SUITE, needs=("ale_py",), install=extra("atari"))


class Plain(gymnasium.Env):
    """Claims to draw but takes no render mode; tells of success at every step."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return np.zeros(1, np.float32), 0.0, bool(action), False, {"is_success": np.bool_(action)}


def stream(env: gymnasium.Env, seed: int, steps: int) -> list[Any]:
    random = np.random.default_rng(0)
    env.action_space.seed(int(random.integers(100)))
    found: list[Any] = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        found += [observation, reward, terminated, truncated]
        if terminated or truncated:
            found.append(env.reset()[0])
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_gymnasium_accepts_registered_environments(name: str) -> None:
    check_env(make(name, EnvConfig(), True), skip_render_check=True, skip_close_check=True)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_same_seed_same_stream(name: str) -> None:
    first, second, other = (stream(make(name, EnvConfig(), True), seed, 60) for seed in (3, 3, 4))
    np.testing.assert_equal(first, second)
    assert not np.array_equal(first[0], other[0])


def test_any_name_is_allowed_and_the_example_exists() -> None:
    assert SUITE.tasks() == []
    make(SUITE.example.removeprefix("gym_"), EnvConfig(), True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("CartPol-v1", "gym_CartPole-v1"), ("CartPole-v9", "gym_CartPole-v1"), ("Nowhere/Thing-v0", "--imports")],
)
def test_unknown_ids_name_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UserError, match=f"unknown task 'gym_{name}'.*{hint}"):
        make(name, EnvConfig(), True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_versions_gymnasium_gave_up_are_explained() -> None:
    with pytest.raises(UserError, match=r"gym_LunarLander-v2.*v3"):
        make("LunarLander-v2", EnvConfig(), True)


def test_own_time_limit_is_a_truncation() -> None:
    env = make("Pendulum-v1", EnvConfig(), True)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(200)]
    assert ends == [(False, False)] * 199 + [(False, True)]


def test_environments_of_the_users_modules_tell_of_success() -> None:
    gymnasium.register("ReveriePlain-v0", entry_point=Plain)
    try:
        env = make("ReveriePlain-v0", EnvConfig(), True)
        env.reset(seed=0)
        assert env.step(0)[4]["summary"] == {"success": 0.0}
        info = env.step(1)[4]
        assert info["summary"] == {"success": 1.0} and info["is_success"]
    finally:
        del gymnasium.registry["ReveriePlain-v0"]


def test_environments_without_success_have_no_summary() -> None:
    env = make("CartPole-v1", EnvConfig(), True)
    env.reset(seed=0)
    assert "summary" not in env.step(0)[4]


def test_namespaced_atari_ids_are_found(installed: Installed) -> None:
    installed(ALE)
    env = make("ALE/Pong-v5", EnvConfig(), True)
    assert env.reset(seed=0)[0].shape == (210, 160, 3)
    env.close()


def test_classic_control_draws_when_asked() -> None:
    env = make("CartPole-v1", EnvConfig(), True)
    env.reset(seed=0)
    assert env.render_mode == "rgb_array" and env.render().shape == (400, 600, 3)
    env.close()


def test_lunar_lander_simulates_no_decoration(installed: Installed) -> None:
    installed(BOX2D)
    env = make("LunarLander-v3", EnvConfig(), True)
    lander: Any = env.unwrapped
    env.reset(seed=0)
    for _ in range(5):
        env.step(2)  # the main engine, whose exhaust is drawn
        assert not lander.particles
    assert env.render_mode == "rgb_array" and env.render().shape == (400, 600, 3)
    env.step(2)
    assert not lander.particles
    env.close()


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(
        UserError,
        match=r"gym_LunarLander-v3.*: pip install 'reverie\[box2d\]' \(in a checkout: make setup-suites, or pip",
    ):
        make("LunarLander-v3", EnvConfig(), True)


def test_half_cheetah_runs_and_draws_without_a_display(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(MUJOCO)
    monkeypatch.chdir(tmp_path)  # MuJoCo logs its warnings into the working directory
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    env = make("HalfCheetah-v5", EnvConfig(), True)
    first, second = stream(env, 1, 20), stream(env, 1, 20)
    np.testing.assert_equal(first, second)
    picture = env.render()
    assert picture.shape == (240, 240, 3) and picture.std() > 0
    assert "MUJOCO_GL" not in os.environ
    env.close()


def test_native_vector_shows_last_observations_before_it_starts_anew() -> None:
    env = make_vector("CartPole-v1", EnvConfig(), 3, True)
    assert env is not None and env.num_envs == 3
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    env.reset(seed=0)
    before = np.zeros(3, bool)
    for _ in range(40):
        observation, reward, terminated, _, _ = env.step(np.ones(3, int))
        assert (np.abs(observation[terminated, 2]) > 0.2).all()
        assert (reward[before] == 0).all() and (np.abs(observation[before]) <= 0.05).all()
        before = terminated
    env.close()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Pendulum-v1", EnvConfig()),
        ("CartPole-v1", EnvConfig(time_limit=10)),
        ("CartPole-v1", EnvConfig(repeat=2)),
    ],
)
def test_no_native_vector_where_it_lacks_something(name: str, options: EnvConfig) -> None:
    assert make_vector(name, options, 2, True) is None
