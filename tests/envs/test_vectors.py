"""What both of our vector environments promise."""

import sys

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs import toy
from reverie.envs.process import ProcessVector
from reverie.envs.serial import SerialVector
from reverie.envs.vector import Maker
from reverie.envs.wrappers import standard

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module in every import mode

KINDS = [SerialVector, ProcessVector]


@pytest.fixture
def build():
    vectors = []

    def make(kind, task, count=3, seed=0, **settings):
        factory = Maker(task, EnvConfig()) if isinstance(task, str) else task
        vectors.append(kind([factory] * count, seed, EnvsConfig(workers=2, **settings)))
        return vectors[-1]

    yield make
    for vector in vectors:
        vector.close()


def copied(outcome):
    observation, *rest, infos = outcome
    return [{key: value.copy() for key, value in observation.items()}, *(part.copy() for part in rest), dict(infos)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_stream_of_a_countable_environment(kind, build):
    vector = build(kind, "toy_count")
    observation, infos = vector.reset()
    assert observation["vector"][:, 0].tolist() == [0, 0, 0]
    assert not infos["broken"].any()
    outcomes = [copied(vector.step(np.array([0, 1, 0]))) for _ in range(13)]
    for env in range(3):
        assert [step[0]["vector"][env, 0] for step in outcomes] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2]
        assert [step[1][env] for step in outcomes] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2]
        assert [step[2][env] for step in outcomes] == [False] * 9 + [True] + [False] * 3
        assert not any(step[3][env] for step in outcomes)
    labels = [[step[0]["vector"][env, 1] for step in outcomes] for env in range(3)]
    assert all(len(set(label[:10])) == 1 and len(set(label)) == 2 for label in labels)
    assert len({label[0] for label in labels}) == 3
    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("task", ["toy_reach", "toy_catch", "toy_hybrid", "toy_multi", "toy_memory", "toy_crash"])
def test_both_backends_show_the_same(task, build):
    left, right = (build(kind, task, max_restarts=100) for kind in KINDS)
    left.action_space.seed(0)
    pair = [vector.reset() for vector in (left, right)]
    same(pair[0][0], pair[1][0])
    for _ in range(120):
        actions = left.action_space.sample()
        one, other = left.step(actions), right.step(actions)
        same(one[0], other[0])
        for mine, its in zip(one[1:4], other[1:4]):
            assert mine.tolist() == its.tolist()
        for key in ("life_lost", "broken"):
            assert one[4][key].tolist() == other[4][key].tolist()
        assert one[4]["summary"] == other[4]["summary"]


def same(left, right):
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert np.array_equal(value, right[key]) and value.dtype == right[key].dtype


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_decide(kind, build):
    first, again, other = (build(kind, "toy_reach", seed=seed).reset()[0]["vector"].copy() for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.isclose(first, other).any()


@pytest.mark.parametrize("kind", KINDS)
def test_reset_goes_on_with_new_episodes_unless_given_a_seed(kind, build):
    vector = build(kind, "toy_count", seed=5)
    labels = [vector.reset()[0]["vector"][:, 1].tolist() for _ in range(2)]
    assert labels[0] != labels[1]
    assert vector.reset(seed=5)[0]["vector"][:, 1].tolist() == labels[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [4, 50, 83])
@pytest.mark.parametrize("task", ["toy_reach", "toy_catch"])
def test_state_and_restore_are_exact(kind, steps, task, build):
    vector = build(kind, task)
    vector.action_space.seed(3)
    observation, _ = vector.reset()
    for _ in range(steps):
        observation = vector.step(vector.action_space.sample())[0]
    observation = {key: value.copy() for key, value in observation.items()}
    state = vector.state()
    later = [vector.action_space.sample() for _ in range(60)]
    expected = [copied(vector.step(actions)) for actions in later]
    fresh = build(kind, task)
    same(fresh.restore(state), observation)
    for actions, known in zip(later, expected):
        step = fresh.step(actions)
        same(step[0], known[0])
        assert all(mine.tolist() == its.tolist() for mine, its in zip(step[1:4], known[1:4]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_goes_from_one_backend_to_the_other(kind, build):
    vector = build(kind, "toy_count")
    vector.reset()
    for _ in range(14):
        shown = vector.step(np.zeros(3, np.int64))[0]
    other = build(next(each for each in KINDS if each is not kind), "toy_count")
    same(other.restore(vector.state()), shown)


@pytest.mark.parametrize("kind", KINDS)
def test_asynchronous_steps(kind, build):
    vector = build(kind, "toy_count")
    vector.reset()
    vector.step_async(np.zeros(3, np.int64))
    assert vector.step_wait()[1].tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="without step_async"):
        vector.step_wait()


@pytest.mark.parametrize("kind", KINDS)
def test_actions_of_another_shape_are_refused(kind, build):
    vector = build(kind, "toy_count")
    vector.reset()
    with pytest.raises(UserError, match=r"actions have shape \(1,\)"):
        vector.step(np.zeros(1, np.int64))


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_of_the_first_environments(kind, build):
    vector = build(kind, "toy_catch")
    vector.reset()
    pictures = vector.pictures(2)
    assert [picture.shape for picture in pictures] == [(128, 128, 3)] * 2
    assert np.array_equal(vector.render()[0], pictures[0])


class Lives(toy.Count):
    """Loses a life at step 4."""

    def step(self, action):
        return (*super().step(action)[:4], {"life_lost": self.steps == 4})


def lives():
    return standard(Lives(), EnvConfig(), 1, frozenset())


@pytest.mark.parametrize("kind", KINDS)
def test_lost_lives_are_told(kind, build):
    vector = build(kind, lives)
    vector.reset()
    lost = [vector.step(np.zeros(3, np.int64))[4]["life_lost"].tolist() for _ in range(5)]
    assert lost == [[False] * 3] * 3 + [[True] * 3, [False] * 3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_raising_environment_is_restarted_alone(kind, build):
    vector = build(kind, "toy_crash", count=4, max_restarts=1000)
    vector.reset()
    broken = [vector.step(np.zeros(4, np.int64))[4]["broken"].copy() for _ in range(300)]
    assert 5 < np.sum(broken) < 100
    assert max(np.sum(broken, 1)) <= 3


def test_gymnasium_understands_the_vectors(build):
    vector = build(SerialVector, "toy_hybrid")
    assert isinstance(vector, gymnasium.vector.VectorEnv) and vector.num_envs == 3
    observation, _ = vector.reset()
    assert vector.observation_space.contains(observation)
    assert vector.action_space.contains(np.zeros(3, np.int64))
