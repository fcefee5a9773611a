import logging

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs import checks
from reverie.envs.slot import Slot
from reverie.envs.wrappers import standard

GOOD = np.zeros(3, np.float32)


class Shows(gymnasium.Env):
    """Shows the given observation and reward at its first step."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation=GOOD, reward=0.0, space=None, first=GOOD):
        self.observation_space = space or spaces.Box(-10, 10, (3,), np.float32)
        self.shown, self.reward, self.first = observation, reward, first

    def reset(self, *, seed=None, options=None):
        return self.first, {}

    def step(self, action):
        return self.shown, self.reward, False, False, {}


def stepped(env, checks=True):
    slot = Slot(lambda: standard(env, EnvConfig(), 1, frozenset()), 3, 0, EnvsConfig(checks=checks))
    slot.reset()
    return slot.step(0)


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.array([0, 0, np.nan], np.float32), "observation 'vector' has NaN at index 2"),
        (np.array([0, -np.inf, 0], np.float32), "observation 'vector' has infinity at index 1"),
        (np.zeros(4, np.float32), r"observation 'vector' has shape \(4,\), its space promises \(3,\)"),
        (np.zeros(3, np.int64), "observation 'vector' is int64, its space promises float32"),
        ([0.0, 0.0, 0.0], "observation 'vector' is a list, its space promises a numpy array"),
    ],
)
def test_a_wrong_observation_is_told_in_one_line(observation, words):
    with pytest.raises(UserError, match=f"environment 3: {words}: mend") as caught:
        stepped(Shows(observation))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reward", "words"),
    [(float("nan"), "is NaN"), (None, "is None, not a number"), (np.zeros(2), "is .*, not a number")],
)
def test_a_wrong_reward_is_told(reward, words):
    with pytest.raises(UserError, match=f"environment 3: the reward {words}"):
        stepped(Shows(reward=reward))


def test_the_first_observation_is_checked_too():
    with pytest.raises(UserError, match="has NaN at index 0"):
        stepped(Shows(first=np.full(3, np.nan, np.float32)))


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        ({"a": 1}, "'observation' lacks 'b'"),
        ({"a": 1, "b": GOOD, "c": 2}, "'observation' has 'c' beyond its space"),
        ({"a": 7, "b": GOOD}, "observation 'a' is 7, outside of Discrete"),
        ({"a": 0.5, "b": GOOD}, "observation 'a' is a float, its space promises an integer"),
        (GOOD, "'observation' is a ndarray, not a dict"),
    ],
)
def test_wrong_entries_of_a_dict_are_named(observation, words):
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (3,))})
    with pytest.raises(UserError, match=f"environment 3: {words}"):
        stepped(Shows(observation, space=space, first={"a": 0, "b": GOOD}))


def test_float64_for_float32_is_converted_and_told_once(caplog):
    def make():
        return standard(Shows(np.zeros(3), first=np.zeros(3)), EnvConfig(), 1, frozenset())

    with caplog.at_level(logging.WARNING, "reverie"):
        slots = [Slot(make, index, 0, EnvsConfig()) for index in range(3)]
        for slot in slots:
            slot.reset()
            assert slot.step(0).observation["vector"].dtype == np.float32
            slot.reset()
    assert [record.getMessage() for record in caplog.records] == [
        "environment 0: observation 'vector' is float64, its space promises float32: it is converted"
    ]


def test_checks_can_be_left_out():
    assert stepped(Shows(np.ones(3, np.int64)), checks=False).observation["vector"].tolist() == [1, 1, 1]


def test_only_the_first_steps_are_checked():
    env = Shows()
    slot = Slot(lambda: standard(env, EnvConfig(), 1, frozenset()), 0, 0, EnvsConfig())
    slot.reset()
    for _ in range(checks.STEPS):
        slot.step(0)
    env.shown = np.ones(3, np.int64)
    assert slot.step(0).observation["vector"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("values", "reward", "fault"),
    [
        ([0, np.nan], 0.0, "observation 'x' has NaN at index 1"),
        ([-np.inf, 0], np.nan, "observation 'x' has infinity at index 0"),
        ([0, 0], -np.inf, "the reward is infinity"),
        ([3e38, -3e38], 1e308, ""),  # the sum of their squares overflows
        ([0, 0], 1.0, ""),
    ],
)
def test_what_is_not_finite_is_found_at_any_step(values, reward, fault):
    shown = {"x": np.array(values, np.float32), "image": np.zeros((2, 2, 3), np.uint8)}
    assert checks.spoiled(shown, ("x",), reward) == fault


@pytest.mark.parametrize(
    ("space", "actions", "words"),
    [
        (spaces.Box(-1, 1, (2,)), np.array([[0, 0], [0, 1.5]], np.float32), "environment 1: action at index 1 is 1.5"),
        (spaces.Box(-1, 1, (2,)), np.full((2, 2), np.nan, np.float32), "environment 0: action at index 0 is nan"),
        (spaces.Box(-1, 1, (2,)), np.zeros((2, 3), np.float32), r"actions have shape \(2, 3\)"),
        (spaces.Box(-1, 1, (2,)), np.zeros((2, 2), np.int64), "actions are int64, the environments want float32"),
        (spaces.Discrete(3), np.array([0, 3]), r"environment 1: action is 3, outside of \[0, 2\]"),
        (spaces.Discrete(3), np.array([0.0, 1.0]), "actions are float64"),
        (spaces.MultiDiscrete([2, 3]), np.array([[1, 2], [2, 2]]), "environment 1: action at index 0 is 2"),
    ],
)
def test_wrong_actions_are_told(space, actions, words):
    with pytest.raises(UserError, match=words):
        checks.actions(space, actions, 2)


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Box(-1, 1, (2,)), np.array([[-1, 1], [0, 1 + 1e-6]], np.float32)),
        (spaces.Box(-np.inf, np.inf, (1,)), np.array([[1e9], [-1e9]], np.float32)),
        (spaces.Discrete(3), np.array([0, 2])),
        (spaces.MultiDiscrete([2, 3]), np.array([[1, 2], [0, 0]])),
    ],
)
def test_right_actions_pass(space, actions):
    checks.actions(space, actions, 2)


def test_rows_of_other_vector_environments_are_checked():
    space = spaces.Dict({"vector": spaces.Box(-1, 1, (2,))})
    rows = {"vector": np.zeros((4, 2), np.float32)}
    checks.observations(space, rows, 4)
    rows["vector"][3, 1] = np.nan
    with pytest.raises(UserError, match="environment 3: observation 'vector' has NaN at index 1"):
        checks.observations(space, rows, 4)
    with pytest.raises(UserError, match="environment 0: observation 'vector'"):
        checks.observations(space, {"vector": np.zeros((4, 2))}, 4)
    with pytest.raises(UserError, match="environment 1: the reward is infinity"):
        checks.rewards(np.array([0, np.inf]))
