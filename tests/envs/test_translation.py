import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig
from reverie.envs.registry import make_env, make_own_env
from reverie.envs.translation import Translation
from reverie.envs.wrappers import standard


class Shows(gymnasium.Env):
    """Draws observations from its space and keeps the actions it was given."""

    def __init__(self, observation_space, action_space=None):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.given = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.shown = self.observation_space.sample()
        return self.shown, {}

    def step(self, action):
        self.given.append(action)
        self.shown = self.observation_space.sample()
        return self.shown, 0.0, False, False, {}


SPACES = {
    "vector": spaces.Box(-1, 1, (3,), np.float64),
    "scalar": spaces.Box(-1, 1, (), np.float32),
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "gray": spaces.Box(0, 255, (12, 10), np.uint8),
    "image": spaces.Box(0, 255, (12, 10, 3), np.uint8),
    "class": spaces.Discrete(3, start=1),
    "classes": spaces.MultiDiscrete([2, 3], start=[5, 1]),
    "bits": spaces.MultiBinary(4),
    "nested": spaces.Dict(
        {"eye": spaces.Box(0, 255, (12, 10, 3), np.uint8), "body": spaces.Tuple((spaces.Discrete(3, start=1),))}
    ),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32))),
}


@pytest.mark.parametrize("options", [{}, {"size": 8, "gray": True, "stack": 3}], ids=["plain", "images"])
@pytest.mark.parametrize("name", SPACES)
def test_own_observations_become_what_the_wrapped_environment_shows(name, options):
    own, config = Shows(SPACES[name]), EnvConfig(**options)
    wrapped = standard(own, config, 1, frozenset())
    translation = Translation(own, config, frozenset())
    assert translation.observation_space == wrapped.observation_space
    for _ in range(2):
        expected, _ = wrapped.reset(seed=0)
        for first in (True, False, False, False, False):
            if not first:
                expected = wrapped.step(0)[0]
            seen = translation.observation(own.shown, first)
            assert seen.keys() == expected.keys()
            for key, array in expected.items():
                assert seen[key].dtype == array.dtype
                np.testing.assert_array_equal(seen[key], array)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 7]]),
        spaces.MultiBinary((2, 2)),
        spaces.Box(-2, 2, (2, 3), np.float64),
        spaces.Dict({"jump": spaces.Discrete(3, start=1), "arm": spaces.Tuple((spaces.Box(-1, 1, (2, 2)),))}),
    ],
    ids=str,
)
def test_actions_are_those_the_wrapped_environment_passes_on(space):
    own = Shows(SPACES["vector"], space)
    wrapped = standard(own, EnvConfig(), 1, frozenset())
    translation = Translation(own, EnvConfig(), frozenset())
    wrapped.reset(seed=0)
    wrapped.action_space.seed(0)
    for _ in range(5):
        action = wrapped.action_space.sample()
        wrapped.step(action)
        translated = translation.action(action)
        assert data_equivalence(translated, own.given[-1]) or int(translated) == own.given[-1]
        assert translated in space


def test_what_the_agent_was_trained_on_is_left_as_it_is():
    options = EnvConfig(size=8, stack=2)
    translation = Translation(Shows(SPACES["image"]), options, frozenset())
    ready = np.arange(8 * 8 * 6, dtype=np.uint8).reshape(8, 8, 6)
    for given in (ready, {"image": ready}, {"image": ready, "other": 1}):
        np.testing.assert_array_equal(translation.observation(given, True)["image"], ready)


def test_what_could_be_either_is_the_environments_own():
    translation = Translation(Shows(SPACES["class"]), EnvConfig(), frozenset())
    assert [int(translation.observation(value, False)["vector"]) for value in (1, 2, 3)] == [0, 1, 2]
    assert int(translation.observation(0, False)["vector"]) == 0  # 0 is none of its own


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("vector", np.zeros(4), r"shape \(4,\), the agent was trained on float32 \(3,\)"),
        ("image", np.zeros((12, 10, 3)), r"'image' is float64 .* trained on uint8"),
        ("nested", np.zeros(3), "does not fit Dict"),
        ("nested", {"eye": np.zeros((12, 10, 3), np.uint8)}, "has no 'body/0'"),
        ("class", 7, "'vector' is 7, outside of Discrete"),
    ],
)
def test_what_fits_neither_is_told(name, given, words):
    translation = Translation(Shows(SPACES[name]), EnvConfig(), frozenset())
    with pytest.raises(UserError, match=words):
        translation.observation(given, True)


def test_a_suites_own_environment_is_repeated_and_limited_in_time_alone():
    options = EnvConfig(repeat=2, time_limit=3, size=8)
    with make_own_env("gym_CartPole-v1", options) as own, make_env("gym_CartPole-v1", options) as wrapped:
        shown, _ = own.reset(seed=0)
        np.testing.assert_array_equal(shown, wrapped.reset(seed=0)[0]["vector"])
        for t in range(3):
            shown, reward, _, truncated, _ = own.step(t % 2)
            np.testing.assert_array_equal(shown, wrapped.step(np.int64(t % 2))[0]["vector"])
            assert (reward, truncated) == (2.0, t == 2)
