from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig
from reverie.envs.registry import find
from reverie.envs.suites.minecraft import SUITE, MinecraftEnv, make


class Choice(spaces.Discrete):
    """MineRL's space of names."""

    def __init__(self, *values: str) -> None:
        super().__init__(len(values))
        self.values = np.array(values)


class Keys(spaces.Dict):
    """MineRL's space of actions."""

    def no_op(self) -> dict[str, Any]:
        return {"attack": 0, "forward": 0, "jump": 0, "camera": np.zeros(2, np.float32), "craft": "none"}


class World:
    """Speaks as MineRL does, the old gym's way: the game itself needs Java and gigabytes of downloads."""

    observation_space = spaces.Dict(
        {
            "pov": spaces.Box(0, 255, (90, 160, 3), np.uint8),
            "inventory": spaces.Dict({"log": spaces.Box(0, 2304, (), np.int32)}),
            "equipped": spaces.Dict({"type": Choice("none", "axe"), "damage": spaces.Box(0, 9, (), np.int32)}),
        }
    )
    action_space = Keys(
        {
            "attack": spaces.Discrete(2),
            "forward": spaces.Discrete(2),
            "jump": spaces.Discrete(2),
            "camera": spaces.Box(-180, 180, (2,), np.float32),
            "craft": Choice("none", "planks", "stick"),
        }
    )

    def __init__(self) -> None:
        self.played: list[dict[str, Any]] = []
        self.timed_out = False
        self.closed = False

    def seed(self, seed: int) -> None:
        self.random = np.random.RandomState(seed)

    def reset(self) -> dict[str, Any]:
        self.frame = self.random.randint(0, 256, (90, 160, 3)).astype(np.uint8)
        return self.seen()

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        self.played.append(action)
        self.frame[:] = self.random.randint(0, 256, self.frame.shape)
        done = action["craft"] == "stick"
        return self.seen(), np.float64(action["attack"]), done, {"TimeLimit.truncated": self.timed_out}

    def seen(self) -> dict[str, Any]:
        equipped = {"type": "axe", "damage": np.array(3, np.int32)}
        return {"pov": self.frame, "inventory": {"log": np.array(5, np.int32)}, "equipped": equipped}

    def close(self) -> None:
        self.closed = True


@pytest.mark.skipif(not SUITE.missing(), reason="MineRL is installed")
@pytest.mark.parametrize("ask", [lambda: find(SUITE.example), lambda: make("MineRLTreechop-v0", EnvConfig(), True)])
def test_says_what_to_install(ask: Any) -> None:
    with pytest.raises(UserError, match=r"needs minerl: install Java 8 .*pip install minerl"):
        ask()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_the_adapter() -> None:
    check_env(MinecraftEnv(World(), 64), skip_render_check=True)


def test_observation_is_an_image_and_vectors_without_names() -> None:
    env = MinecraftEnv(World(), 64)
    observation, _ = env.reset(seed=0)
    assert {key: value.shape for key, value in observation.items()} == {
        "image": (64, 64, 3),
        "inventory/log": (1,),
        "equipped/damage": (1,),
    }
    assert observation["inventory/log"] == 5.0 and observation["inventory/log"].dtype == np.float32
    assert env.render().shape == (90, 160, 3)


def test_actions_are_one_key_one_turn_or_one_thing() -> None:
    world = World()
    env = MinecraftEnv(world, 64)
    assert env.action_space == gymnasium.spaces.Discrete(1 + 3 + 1 + 4 + 2)
    env.reset(seed=0)
    for action in range(11):
        env.step(action)
    pressed = [
        {key: value for key, value in action.items() if np.any(value != World.action_space.no_op()[key])}
        for action in world.played
    ]
    assert [set(action) for action in pressed] == [
        set(),
        {"attack"},
        {"forward"},
        {"jump"},
        {"jump", "forward"},
        *[{"camera"}] * 4,
        *[{"craft"}] * 2,
    ]
    assert all(set(action) == set(World.action_space.no_op()) for action in world.played)


@pytest.mark.parametrize("timed_out", [False, True])
def test_time_limit_is_a_truncation(timed_out: bool) -> None:
    world = World()
    world.timed_out = timed_out
    env = MinecraftEnv(world, 64)
    env.reset(seed=0)
    assert env.step(1)[2:4] == (False, False)
    assert env.step(10)[2:4] == (not timed_out, timed_out)


def test_images_are_never_the_games_own() -> None:
    env = MinecraftEnv(World(), 64)
    image, picture = env.reset(seed=0)[0]["image"], env.render()
    kept = image.copy(), picture.copy()
    env.step(0)
    np.testing.assert_equal((image, picture), kept)


def test_same_seed_same_world_and_closing_ends_it() -> None:
    world = World()
    env = MinecraftEnv(world, 64)
    first, second, other = (env.reset(seed=seed)[0]["image"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)
    env.close()
    assert world.closed
