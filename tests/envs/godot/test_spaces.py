"""What a game declares and shows, as spaces and arrays."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from reverie.config.errors import UserError
from reverie.envs.godot import spaces

SEEN = {
    "obs": {"size": [3], "space": "box"},
    "camera_2d": {"size": [2, 2, 4], "space": "box"},
    "gray_2d": {"size": [2, 3], "space": "box"},
    "room": {"size": 5, "space": "discrete"},
}
TURN = {"turn": {"size": 3, "action_type": "discrete"}}
PUSH = {"push": {"size": 2, "action_type": "continuous"}}


def test_observations_belong_to_their_space():
    shown = {"obs": [1, 2.5, -3], "camera_2d": bytes(range(16)).hex(), "gray_2d": bytes(range(6)).hex(), "room": 4.0}
    space, found = spaces.observation_space(SEEN), spaces.observation(SEEN, shown)
    assert space.contains(found)
    assert found["obs"].tolist() == [1, 2.5, -3] and found["room"] == 4
    assert found["camera_2d"].tolist() == [[[0, 1, 2], [4, 5, 6]], [[8, 9, 10], [12, 13, 14]]]  # without transparency
    assert found["gray_2d"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_one_action_stands_alone_and_several_have_names():
    assert spaces.action_space(TURN) == Discrete(3)
    assert spaces.action_space(PUSH) == Box(-1, 1, (2,), np.float32)
    assert spaces.action_space(TURN | PUSH) == Dict({"turn": Discrete(3), "push": Box(-1, 1, (2,), np.float32)})
    assert spaces.action(TURN, np.int64(2)) == {"turn": 2}
    push = np.array([0.5, -1], np.float32)
    assert spaces.action(PUSH, push) == {"push": [0.5, -1.0]}
    assert spaces.action(TURN | PUSH, {"turn": np.int64(1), "push": push}) == {"turn": 1, "push": [0.5, -1.0]}


def test_games_declare_for_all_agents_or_for_each():
    assert spaces.of_first(SEEN) == spaces.of_first([SEEN, TURN]) == SEEN


def test_unknown_kinds_are_told():
    with pytest.raises(UserError, match="shows 'obs' as 'graph'"):
        spaces.observation_space({"obs": {"size": 1, "space": "graph"}})
    with pytest.raises(UserError, match="takes 'jump' as 'text'"):
        spaces.action_space({"jump": {"size": 1, "action_type": "text"}})
