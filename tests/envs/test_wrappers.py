import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig
from reverie.envs.registry import make_env
from reverie.envs.wrappers import standard


class Film(gymnasium.Env):
    """Images of one brightness, the number of the step; a life is lost at step 2."""

    action_space = spaces.Discrete(2)

    def __init__(self, shape=(8, 8, 3), length=1000):
        self.observation_space = spaces.Dict(
            {"eye": spaces.Box(0, 255, shape, np.uint8), "time": spaces.Discrete(2000)}
        )
        self.length = length

    def observe(self):
        return {"eye": np.full(self.observation_space["eye"].shape, self.steps, np.uint8), "time": self.steps}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), 1.0, self.steps == self.length, False, {"life_lost": self.steps == 2}


def wrapped(env, handles=frozenset(), repeat=1, **options):
    return standard(env, EnvConfig(**options), repeat, frozenset(handles))


def test_repeat_sums_rewards_and_keeps_a_lost_life():
    env = wrapped(Film(), repeat=4)
    env.reset()
    observation, reward, terminated, truncated, info = env.step(0)
    assert (observation["time"], reward, terminated, truncated, info["life_lost"]) == (4, 4.0, False, False, True)
    assert not env.step(0)[4]["life_lost"]


def test_repeat_stops_at_an_end():
    env = wrapped(Film(length=6), repeat=4)
    env.reset()
    env.step(0)
    observation, reward, terminated, _, _ = env.step(0)
    assert (observation["time"], reward, terminated) == (6, 2.0, True)


def test_the_option_wins_over_the_suites_repeat():
    env = wrapped(Film(), repeat=4)
    other = standard(Film(), EnvConfig(repeat=2), 4, frozenset())
    for each, steps in ((env, 4), (other, 2)):
        each.reset()
        assert each.step(0)[0]["time"] == steps


def test_a_time_limit_counts_agent_steps_and_truncates():
    env = standard(Film(), EnvConfig(repeat=2, time_limit=3), 1, frozenset())
    env.reset()
    ends = [env.step(0)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_a_time_limit_takes_the_place_of_an_earlier_one():
    env = wrapped(TimeLimit(Film(), 2), time_limit=5)
    env.reset()
    assert [env.step(0)[3] for _ in range(5)] == [False] * 4 + [True]


def test_zero_removes_a_time_limit_below_other_wrappers():
    inner = gymnasium.wrappers.OrderEnforcing(TimeLimit(Film(), 2))
    env = wrapped(inner, time_limit=0)
    env.reset()
    assert not any(env.step(0)[3] for _ in range(10))


def test_images_are_resized_and_other_observations_stay():
    env = wrapped(Film((12, 8, 3)), size=4)
    first, _ = env.reset()
    observation = env.step(0)[0]
    assert first["eye"].shape == env.observation_space["eye"].shape == (4, 4, 3)
    assert (observation["eye"] == 1).all() and observation["eye"].dtype == np.uint8
    assert observation["time"] == 1


def test_gray_is_luminance():
    class Red(Film):
        def observe(self):
            image = np.zeros((8, 8, 3), np.uint8)
            image[..., 0] = 200
            return {"eye": image, "time": self.steps}

    image = wrapped(Red(), gray=True).reset()[0]["eye"]
    assert image.shape == (8, 8, 1) and (image == 60).all()  # 0.299 of 200


def test_gray_of_odd_channels_is_refused():
    with pytest.raises(UserError, match="'eye' has 5 channels"):
        wrapped(Film((8, 8, 5)), gray=True)


def test_a_stack_starts_with_the_first_image_repeated_and_ends_with_the_newest():
    env = wrapped(Film(), stack=3, gray=True)
    observation, _ = env.reset()
    assert observation["eye"].shape == env.observation_space["eye"].shape == (8, 8, 3)
    for _ in range(4):
        observation = env.step(0)[0]
    assert observation["eye"][0, 0].tolist() == [2, 3, 4]
    assert env.reset()[0]["eye"].max() == 0


def test_what_the_suite_handles_is_left_alone():
    handled = {"repeat", "size", "gray", "stack", "time_limit"}
    env = standard(Film(), EnvConfig(repeat=3, size=4, gray=True, stack=2, time_limit=1), 3, frozenset(handled))
    env.reset()
    observation, _, _, truncated, _ = env.step(0)
    assert observation["eye"].shape == (8, 8, 3) and observation["time"] == 1 and not truncated


def test_info_is_a_copy():
    class Shared(Film):
        info = {}

        def step(self, action):
            return (*super().step(action)[:4], self.info)

    env = wrapped(Shared())
    env.reset()
    env.step(0)[4]["mine"] = 1
    assert Shared.info == {}


def test_the_registry_wraps_every_task():
    env = make_env("toy_hybrid", EnvConfig(size=16, stack=2))
    observation, _ = env.reset(seed=0)
    assert {key: value.shape for key, value in observation.items()} == {"image": (16, 16, 6), "vector": (2,)}
    assert env.observation_space.contains(observation)
