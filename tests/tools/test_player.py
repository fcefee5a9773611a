"""A trained agent in a user's own environment: whatever it shows and takes."""

import sys

import numpy as np
import pytest

import reverie
from reverie import reopened
from reverie.envs import registry

SOURCE = """
import gymnasium
import numpy as np
from gymnasium import spaces

ACTIONS = {
    "Shifted": spaces.Discrete(3, start=-1),
    "Matrix": spaces.Box(-1, 1, (2, 2), np.float64),
    "Bits": spaces.MultiBinary(3),
    "Choices": spaces.MultiDiscrete([[2, 3], [2, 2]]),
}


class World(gymnasium.Env):
    built = 0

    def __init__(self):
        World.built += 1
        self.observation_space = spaces.Dict(
            {"eye": spaces.Box(0, 255, (12, 10), np.uint8), "body": spaces.Tuple((spaces.Discrete(3),))}
        )
        self.action_space = ACTIONS[type(self).__name__]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert action in self.action_space, action
        self.steps += 1
        return self.observation_space.sample(), 1.0, False, self.steps == 8, {}


class Shifted(World): pass
class Matrix(World): pass
class Bits(World): pass
class Choices(World): pass
"""


@pytest.fixture
def worlds(tmp_path, monkeypatch):
    """The module of the user's environments."""
    (tmp_path / "worlds_of_players.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield registry.user_module("worlds_of_players")
    del sys.modules["worlds_of_players"]


@pytest.fixture
def trained(worlds, tmp_path):
    """A run of a task, made in a moment."""

    def train(name):
        config = reverie.configure(
            "debug", task=f"worlds_of_players:{name}", logdir=str(tmp_path / name), env__size=8, env__stack=2,
            envs__count=2, envs__backend="serial", run__steps=32, run__eval_episodes=1, ppo__rollout=16,
            ppo__features=16,
        )  # fmt: skip
        return reverie.train(config, quiet=True).logdir

    return train


@pytest.mark.parametrize("name", ["Shifted", "Matrix", "Bits", "Choices"])
def test_actions_are_those_of_the_users_own_environment(trained, worlds, name):
    agent = reverie.load(trained(name))
    env = getattr(worlds, name)()
    for seed in range(2):
        observation, _ = env.reset(seed=seed)
        agent.reset()
        ended = False
        while not ended:
            action = agent.act(observation, stochastic=True)
            assert action in env.action_space
            observation, _, _, ended, _ = env.step(action)


def test_an_agent_acts_alike_on_its_own_and_on_ready_observations(trained, worlds):
    folder = trained("Matrix")
    left, right = reverie.load(folder), reverie.load(folder)
    options = reverie.config.store.load(folder).env
    own = worlds.Matrix()
    wrapped = registry.make_env("worlds_of_players:Matrix", options)
    shown, ready = own.reset(seed=3)[0], wrapped.reset(seed=3)[0]
    for _ in range(5):
        action = left.act(shown)
        np.testing.assert_array_equal(action, right.act(ready))
        assert left.value == right.value
        shown, ready = own.step(action)[0], wrapped.step(action.reshape(-1).astype(np.float32))[0]


def test_environments_are_built_once(trained, worlds):
    folder = trained("Shifted")
    config = reverie.config.store.load(folder)
    file = folder / "checkpoints/latest.pt"
    worlds.World.built = 0
    reverie.load(folder)
    assert worlds.World.built == 1
    with reopened.make_task_env(config) as env:
        reopened.make_player(config, file, env)
    assert worlds.World.built == 2
    reopened.evaluate_checkpoint(config, file, 2, "eval")
    assert worlds.World.built == 2 + min(config.run.eval_envs, 2)
