from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from reverie.config.errors import UserError
from reverie.config.schema import DMCConfig, EnvConfig
from reverie.envs.registry import Suite
from reverie.envs.suites.dmc import SUITE, ControlEnv, camera, make, split

FAST = DMCConfig(observation="vision", fast_render=True)


@pytest.fixture(autouse=True)
def _installed(installed: Callable[[Suite], Suite]) -> None:
    installed(SUITE)


def task(name: str, dmc: DMCConfig | None = None, **options: Any) -> ControlEnv:
    env = make(name, EnvConfig(dmc=dmc or DMCConfig(), **options), True)
    assert isinstance(env, ControlEnv)
    return env


def stream(env: ControlEnv, seed: int, steps: int) -> list[Any]:
    random = np.random.default_rng(0)
    found: list[Any] = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        found += env.step(random.uniform(-1, 1, env.action_space.shape))[:4]
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("observation", ["proprio", "vision", "both"])
def test_gymnasium_accepts_all_observations(observation: Any) -> None:
    env = task("cartpole_swingup", DMCConfig(observation=observation, fast_render=True))
    check_env(env, skip_render_check=True)
    env.close()


@pytest.mark.parametrize("name", ["walker_walk", "lqr_lqr_2_1", "point_mass_hard", "finger_turn_hard"])
def test_same_seed_same_stream(name: str) -> None:
    first, second, other = (stream(task(name), seed, 10) for seed in (1, 1, 2))
    np.testing.assert_equal(first, second)
    with pytest.raises(AssertionError):
        np.testing.assert_equal(first, other)


def test_episodes_without_a_seed_differ() -> None:
    env = task("reacher_easy")
    first, second = env.reset()[0], env.reset()[0]
    other = task("reacher_easy").reset()[0]
    assert not np.array_equal(first["position"], second["position"])
    assert not np.array_equal(first["position"], other["position"])


def test_tasks_are_those_of_the_suite() -> None:
    from dm_control import suite

    assert set(SUITE.tasks()) == {f"{domain}_{level}" for domain, level in suite.ALL_TASKS} | {"cup_catch"}
    for domain, level in suite.ALL_TASKS:
        assert split(f"{domain}_{level}") == (domain, level)
    assert split("cup_catch") == ("ball_in_cup", "catch")


def test_tasks_are_known_without_loading_mujoco() -> None:
    code = "import sys; from reverie.envs.suites.dmc import SUITE; SUITE.tasks(); print('mujoco' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_unknown_tasks_name_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown task 'dmc_walker_wlak'.*walker_walk"):
        make("walker_wlak", EnvConfig(), True)


def test_proprio_gives_flat_vectors_and_never_opens_opengl() -> None:
    env = task("walker_walk")
    observation, _ = env.reset(seed=0)
    assert {key: value.shape for key, value in observation.items()} == {
        "orientations": (14,),
        "height": (1,),
        "velocity": (9,),
    }
    assert all(value.dtype == np.float32 for value in observation.values())
    for _ in range(3):
        env.step(env.action_space.sample())
    assert env._task.physics._contexts is None
    assert task("stacker_stack_2").reset(seed=0)[0]["box_pos"].shape == (8,)


def test_proprio_can_still_be_filmed() -> None:
    env = task("walker_walk", DMCConfig(fast_render=True))
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (256, 256, 3) and picture.dtype == np.uint8 and picture.std() > 10
    env.close()
    env.close()


def test_vision_is_drawn_at_its_size_and_nothing_else_is_shown() -> None:
    env = task("walker_walk", FAST)
    observation, _ = env.reset(seed=0)
    assert set(observation) == {"image"} and observation["image"].shape == (64, 64, 3)
    env.close()
    both = task("walker_walk", DMCConfig(observation="both", fast_render=True), size=32)
    observation, _ = both.reset(seed=0)
    assert set(observation) == {"orientations", "height", "velocity", "image"}
    assert observation["image"].shape == (32, 32, 3)
    both.close()


def test_full_quality_is_what_dm_control_draws() -> None:
    from dm_control import suite

    env = task("walker_walk", DMCConfig(observation="vision"))
    image = env.reset(seed=0)[0]["image"]
    plain = suite.load("walker", "walk")
    with plain.physics.reset_context():
        plain.physics.set_state(env._task.physics.get_state())
    np.testing.assert_array_equal(plain.physics.render(64, 64, camera_id=0), image)
    quick = task("walker_walk", FAST).reset(seed=0)[0]["image"]
    difference = np.abs(quick.astype(int) - image).mean()
    assert 0 < difference < 20
    env.close()


def test_images_are_never_shared_and_follow_the_physics() -> None:
    env = task("cartpole_swingup", FAST)
    first = env.reset(seed=0)[0]["image"]
    kept = first.copy()
    second = env.step(np.ones(1))[0]["image"]
    assert not np.shares_memory(first, second) and second.flags.c_contiguous
    np.testing.assert_array_equal(first, kept)
    assert not np.array_equal(first, second)
    env.close()


def test_filming_does_not_change_what_is_seen() -> None:
    filmed, alone = task("cartpole_swingup", FAST), task("cartpole_swingup", FAST)
    for env in (filmed, alone):
        env.reset(seed=0)
    for _ in range(3):
        filmed.render()
        np.testing.assert_array_equal(filmed.step(np.ones(1))[0]["image"], alone.step(np.ones(1))[0]["image"])
    filmed.close()
    alone.close()


def test_cameras() -> None:
    assert camera("walker", DMCConfig()) == 0
    assert camera("quadruped", DMCConfig()) == 2
    assert camera("quadruped", DMCConfig(camera=1)) == 1
    with pytest.raises(UserError, match="no camera 7: this task has cameras 0 to 1"):
        task("walker_walk", DMCConfig(camera=7))


def test_actions_reach_the_bounds_of_the_task() -> None:
    env = task("quadruped_walk")
    env.reset(seed=0)
    spec = env._task.action_spec()
    assert spec.maximum.max() > 1
    env.step(np.ones(12))
    np.testing.assert_allclose(env._task.physics.data.ctrl, spec.maximum)
    env.step(np.full(12, -5.0))
    np.testing.assert_allclose(env._task.physics.data.ctrl, spec.minimum)


def test_actuators_without_bounds_get_the_action_itself() -> None:
    env = task("lqr_lqr_2_1")
    env.reset(seed=0)
    env.step(np.array([0.25]))
    assert env._task.physics.data.ctrl[0] == pytest.approx(0.25)


def test_repeat_sums_rewards_and_halves_the_episode() -> None:
    single, double = task("cartpole_balance", repeat=1), task("cartpole_balance")
    single.reset(seed=3)
    double.reset(seed=3)
    action = np.array([0.3])
    paid = single.step(action)[1] + single.step(action)[1]
    assert double.step(action)[1] == pytest.approx(paid)
    ends = [double.step(action)[2:4] for _ in range(499)]
    assert ends == [(False, False)] * 498 + [(False, True)]
    assert SUITE.repeat == 2 and "repeat" in SUITE.handles


def test_time_limit_of_the_task_gives_way_to_the_users() -> None:
    assert task("pendulum_swingup")._task._step_limit == 1000
    assert task("pendulum_swingup", time_limit=0)._task._step_limit == float("inf")
    assert task("lqr_lqr_2_1")._task._step_limit == pytest.approx(1000)


@pytest.mark.parametrize(("discount", "ends"), [(0.0, (True, False)), (1.0, (False, True))])
def test_discount_tells_real_ends_from_time_outs(discount: float, ends: tuple[bool, bool]) -> None:
    import dm_env

    env = task("cartpole_balance", repeat=4)
    observation = env._task.reset().observation
    played = []

    def step(action: Any) -> Any:
        played.append(action)
        kind = dm_env.StepType.LAST if len(played) == 2 else dm_env.StepType.MID
        return dm_env.TimeStep(kind, 1.5, discount if len(played) == 2 else 1.0, observation)

    env._task.step = step
    _, reward, terminated, truncated, _ = env.step(np.zeros(1))
    assert (terminated, truncated) == ends
    assert reward == 3.0 and len(played) == 2


DRAWING = """
import os
from reverie.config.errors import UserError
from reverie.config.schema import DMCConfig, EnvConfig
from reverie.envs.suites.dmc import make
env = make("pendulum_swingup", EnvConfig(), True)
env.reset(seed=0)
env.step([0.0])
try:
    env = make("pendulum_swingup", EnvConfig(dmc=DMCConfig("vision", fast_render=True)), True)
    print("drawn", env.reset(seed=0)[0]["image"].shape, "MUJOCO_GL" in os.environ)
except UserError as error:
    print(error)
"""


def outcome(**variables: str) -> str:
    hidden = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY", "PYOPENGL_PLATFORM")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | variables
    command = [sys.executable, "-c", DRAWING]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment).stdout


def test_draws_without_a_display_and_leaves_the_variable_alone() -> None:
    assert outcome() == "drawn (64, 64, 3) False\n"


def test_without_opengl_proprio_works_and_vision_says_what_to_install() -> None:
    assert "MuJoCo cannot draw here" in (said := outcome(PYOPENGL_PLATFORM="none")) and "libegl1" in said
