"""Keys and actions."""

import numpy as np
import pytest
from gymnasium import spaces

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig
from reverie.envs.joint import Joint
from reverie.envs.registry import make_own_env, suite
from reverie.tools.controls import Control, action_names, action_of, controls_of

LEFT, RIGHT, UP, FIRE = "ArrowLeft", "ArrowRight", "ArrowUp", " "


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ("atari_pong", [(), (FIRE,), (RIGHT,), (LEFT,), (RIGHT, FIRE), (LEFT, FIRE)]),
        ("mario_1-1", [(), (RIGHT,), (RIGHT, "x"), (RIGHT, "z"), (RIGHT, "x", "z"), ("x",), (LEFT,)]),
        ("minatar_breakout", [(), (LEFT,), (RIGHT,)]),
        ("minigrid_DoorKey-5x5-v0", [(LEFT,), (RIGHT,), (UP,), ("1",), ("2",), (FIRE,), ("3",)]),
        ("toy_catch", [(LEFT,), (), (RIGHT,)]),
        ("gym_CartPole-v1", [(LEFT,), (RIGHT,)]),
        ("gym_Acrobot-v1", [(LEFT,), (), (RIGHT,)]),
        ("gym_LunarLander-v3", [("1",), ("2",), ("3",), ("4",)]),
    ],
)
def test_keys_follow_the_names_of_actions(task, keys, installed):
    installed(suite(task.partition("_")[0]))
    with make_own_env(task, EnvConfig()) as env:
        (control,) = controls_of(env.action_space, action_names(env))
    assert list(control.keys) == keys


def test_crafter_has_a_key_for_everything(installed):
    installed(suite("crafter"))
    with make_own_env("crafter_reward", EnvConfig()) as env:
        (control,) = controls_of(env.action_space, action_names(env))
    assert control.names[:3] == ("noop", "move_left", "move_right") and control.keys[:3] == ((), (LEFT,), (RIGHT,))
    assert len(set(control.keys)) == 17


def test_several_numbers_have_keys_for_less_and_more():
    left, right, many = controls_of(spaces.MultiDiscrete([2, 3, 5]), [])
    assert left == Control(("0", "1"), ((), (RIGHT,)))
    assert right.keys == (("ArrowDown",), (), (UP,))
    assert many.keys == ((), (), (), (), ("d",))
    box = controls_of(spaces.Box(np.array([-2.0, -np.inf], np.float32), np.array([2.0, np.inf], np.float32)), [])
    assert [(each.low, each.high) for each in box] == [(-2, 2), (-1, 1)]
    assert box[0].keys == ((LEFT,), (RIGHT,)) and not box[0].names
    assert len(controls_of(spaces.Box(-1, 1, (9,)), [])) == 9


def test_values_become_actions_and_others_are_refused():
    single = spaces.Discrete(3)
    controls = controls_of(single, [])
    assert action_of([2], controls, single) == 2
    for values in ([3], [-1], [0.5], [True], ["1"], [None], [], [1, 1], {"0": 1}, 1, [float("nan")], [10**401], [[1]]):
        with pytest.raises(UserError):
            action_of(values, controls, single)
    box = spaces.Box(-1, 1, (2,))
    with pytest.raises(UserError):
        action_of([0.5, 10**401], controls_of(box, []), box)
    np.testing.assert_array_equal(action_of([0.5, 7], controls_of(box, []), box), np.array([0.5, 1], np.float32))
    joint = Joint({"move": spaces.Discrete(3), "aim": spaces.Box(-1, 1, (1,))})
    np.testing.assert_array_equal(action_of([0.25, 2], controls_of(joint, []), joint), np.array([0.25, 2], np.float32))
