"""Actions that consist of several: through the standard form, both backends and PPO."""

import copy
import pickle
import sys

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from reverie.agents.ppo import PPO
from reverie.collect.collector import Collector, playable
from reverie.config.errors import UserError
from reverie.config.schema import Config, EnvConfig, EnvsConfig, PPOConfig
from reverie.envs.form import ActionForm
from reverie.envs.joint import Joint
from reverie.envs.process import ProcessVector
from reverie.envs.rows import RowStream
from reverie.envs.serial import SerialVector
from reverie.envs.wrappers import standard

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module in every import mode

NESTED = spaces.Dict(
    {
        "move": spaces.Discrete(3, start=-1),
        "aim": spaces.Box(-2, 2, (2, 1), np.float64),
        "extra": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(0, 1, (), np.float32)]),
    }
)


class Archer(gymnasium.Env):
    """Shows where to move and to aim and pays for both; it takes nested actions only. Shows the last action too."""

    metadata = {"render_modes": []}
    observation_space = spaces.Box(-9, 9, (2 + 6,), np.float32)
    action_space = NESTED

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.last = 0, np.zeros(6)
        return self.observe(), {}

    def observe(self):
        self.move, self.aim = int(self.np_random.integers(3)) - 1, float(self.np_random.uniform(-1, 1))
        return np.array([self.move, self.aim, *self.last], np.float32)

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float(action["move"] == self.move) - abs(float(action["aim"][0, 0]) - self.aim)
        extra = (*action["extra"][0], float(action["extra"][1]))
        self.last = np.array([action["move"], *action["aim"][:, 0], *extra])
        self.steps += 1
        return self.observe(), reward, self.steps == 8, False, {}


def make_archer():
    return standard(Archer(), EnvConfig(), 1, frozenset())


@pytest.fixture
def stream():
    streams = []

    def make(kind):
        vector = (
            SyncVectorEnv([Archer] * 3) if kind is SyncVectorEnv else kind([make_archer] * 3, 0, EnvsConfig(workers=2))
        )
        streams.append(RowStream(vector))
        return streams[-1]

    yield make
    for each in streams:
        each.close()


def test_nested_actions_become_one_vector_and_back():
    form = ActionForm(NESTED)
    assert dict(form.space.parts) == {
        "aim": spaces.Box(-2, 2, (2,), np.float32),
        "extra/0": spaces.MultiDiscrete([2, 2]),
        "extra/1": spaces.Box(0, 1, (1,), np.float32),
        "move": spaces.Discrete(3),
    }
    row = np.array([0.5, -1.5, 1, 0, 0.25, 2], np.float32)
    action = form(row)
    assert NESTED.contains(action)
    assert action["move"] == 1 and action["aim"].tolist() == [[0.5], [-1.5]]
    assert action["extra"][0].tolist() == [1, 0] and float(action["extra"][1]) == 0.25
    many = form(np.stack([row, row, np.zeros(6, np.float32)]), (3,))
    assert many["move"].tolist() == [1, 1, -1] and many["aim"].shape == (3, 2, 1)
    assert many["extra"][0].tolist() == [[1, 0], [1, 0], [0, 0]] and many["extra"][1].tolist() == [0.25, 0.25, 0]


def test_every_joint_sample_is_an_action():
    form = ActionForm(NESTED)
    form.space.seed(0)
    rows = [form.space.sample() for _ in range(200)]
    assert all(form.space.contains(row) and NESTED.contains(form(row)) for row in rows)
    assert {float(row[-1]) for row in rows} == {0.0, 1.0, 2.0}
    form.space.seed(0)
    assert all(np.array_equal(form.space.sample(), row) for row in rows)


def test_joint_spaces_are_compared_copied_and_kept():
    space = ActionForm(NESTED).space
    assert ActionForm(space).space is space
    assert space == copy.deepcopy(space) == pickle.loads(pickle.dumps(space))
    assert space != spaces.Box(space.low, space.high, dtype=np.float32)
    assert space != Joint({"move": spaces.Discrete(3)})
    assert "move: Discrete(3)" in repr(space)


def test_a_tuple_may_be_long():
    form = ActionForm(spaces.Tuple([spaces.Discrete(20)] * 12))
    row = np.zeros(12, np.float32)
    for i in range(12):
        row[form.space.slices[str(i)]] = i
    assert form(row) == tuple(range(12))


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Dict({"a": spaces.Box(0, 5, (2,), np.int64)}), "action space is a Box of int64"),
        (spaces.Tuple([spaces.Text(3)]), "action space is a Text"),
        (spaces.Dict({}), "no entries"),
        (spaces.Dict({"a/b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}), "two .* 'a/b'"),
    ],
)
def test_what_a_row_cannot_hold_is_refused(space, words):
    with pytest.raises(UserError, match=words):
        ActionForm(space)


@pytest.mark.parametrize("kind", [SerialVector, ProcessVector, SyncVectorEnv])
def test_the_environment_plays_what_the_row_says(kind, stream):
    rows_stream = stream(kind)
    rows_stream.begin()
    actions = np.array([[0.5, -1.5, 1, 0, 0.25, 2], [2, -2, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1]], np.float32)
    rows = rows_stream.step(actions)
    # the environment shows move, aim and extras in this order, its moves from -1
    shown = np.concatenate([actions[:, 5:] - 1, actions[:, :2], actions[:, 2:5]], 1)
    assert np.array_equal(rows["vector"][:, 2:], shown)
    with pytest.raises(UserError, match=r"environment 1: action at index 5 is 3.0, outside of \[0.0, 2.0\]"):
        rows_stream.step(actions + np.array([[0], [1], [0]]) * np.eye(6, dtype=np.float32)[5] * 3)


@pytest.mark.parametrize("kind", [SerialVector, ProcessVector])
def test_episodes_can_be_played_again(kind, stream):
    rows_stream = stream(kind)
    rows_stream.begin()
    rows_stream.action_space.seed(1)
    for _ in range(5):
        rows = rows_stream.step(np.stack([rows_stream.action_space.sample() for _ in range(3)]))
    saved, shown = rows_stream.state(), rows["vector"].copy()
    rows_stream.step(np.stack([rows_stream.action_space.sample() for _ in range(3)]))
    assert np.array_equal(rows_stream.restore(saved)["vector"], shown)


def test_only_numbers_are_cut_at_their_borders():
    space = ActionForm(NESTED).space
    action = torch.tensor([[3.0, -5.0, 1.0, 0.0, 1.5, 2.0]])
    assert playable(action, space).tolist() == [[2.0, -2.0, 1.0, 0.0, 1.0, 2.0]]


def test_ppo_learns_both_kinds_of_action(stream):
    torch.manual_seed(0)
    rows_stream = stream(SerialVector)
    settings = PPOConfig(rollout=64, epochs=6, minibatch=96, units=32, lr=5e-3, log_std=-1.0, entropy=0.0)
    config = Config(ppo=settings, envs=EnvsConfig(count=3))
    agent = PPO(rows_stream.observation_space, rows_stream.action_space, config, torch.device("cpu"))
    collector = Collector(rows_stream, agent, torch.device("cpu"))
    before = paid(collector.collect(64))
    for _ in range(12):
        agent.learn_rollout(collector.collect(64).rows)
    chunk = Collector(rows_stream, agent, torch.device("cpu"), "eval").collect(64)
    assert chunk.rows["action"].shape == (65, 3, 6) and chunk.rows["action"].dtype == torch.float32
    # at best, moving right alone brings 0.5 and aiming right alone 0.33
    assert before < 0.1 and paid(chunk) > 0.6


def paid(chunk):
    return float(chunk.rows["reward"][1:].sum()) / chunk.steps
