import logging
import sys

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs import toy
from reverie.envs.checks import STEPS
from reverie.envs.process import ProcessVector
from reverie.envs.rows import RowStream
from reverie.envs.serial import SerialVector
from reverie.envs.vector import Maker, NativeVector
from reverie.envs.wrappers import standard

cloudpickle.register_pickle_by_value(sys.modules[__name__])

KINDS = [SerialVector, ProcessVector]


def form(env, **options):
    return standard(env, EnvConfig(**options), 1, frozenset())


@pytest.fixture
def stream():
    streams = []

    def make(task, kind=SerialVector, count=2, options=None, **settings):
        factory = Maker(task, EnvConfig()) if isinstance(task, str) else task
        vector = kind([factory] * count, 0, EnvsConfig(workers=2, **settings))
        streams.append(RowStream(vector, options))
        return streams[-1]

    yield make
    for each in streams:
        each.close()


def zeros(rows):
    return np.zeros(len(rows["reward"]), np.int64)


def played(rows_stream, count):
    """Copies of the first rows and those of `count` steps."""
    rows = [rows_stream.begin()]
    rows[0] = {key: value.copy() for key, value in rows[0].items()}
    for _ in range(count):
        rows.append({key: value.copy() for key, value in rows_stream.step(zeros(rows[0])).items()})
    return rows


def column(rows, key, env=0):
    return [row[key][env].tolist() for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_countable_environment(kind, stream):
    rows = played(stream("toy_count", kind), 12)
    assert [vector[0] for vector in column(rows, "vector")] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1]
    assert column(rows, "reward") == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1]
    assert column(rows, "is_first") == [True] + [False] * 10 + [True, False]
    assert column(rows, "is_last") == column(rows, "is_terminal") == [False] * 10 + [True, False, False]
    assert rows[0]["reward"].dtype == np.float32 and rows[0]["is_first"].dtype == np.bool_


@pytest.mark.parametrize("kind", KINDS)
def test_a_timeout_is_last_but_not_terminal(kind, stream):
    rows = played(stream("toy_timeout", kind), 7)
    assert column(rows, "is_last") == [False] * 5 + [True, False, False]
    assert not any(column(rows, "is_terminal"))
    assert column(rows, "is_first") == [True] + [False] * 5 + [True, False]
    assert column(rows, "reward") == [0, 1, 1, 1, 1, 1, 0, 1]


class Lives(toy.Count):
    def step(self, action):
        return (*super().step(action)[:4], {"life_lost": self.steps == 4})


def test_a_lost_life_is_terminal_but_not_last(stream):
    rows = played(stream(lambda: form(Lives())), 11)
    assert column(rows, "is_terminal") == [False] * 4 + [True] + [False] * 5 + [True, False]
    assert column(rows, "is_last") == [False] * 10 + [True, False]


def test_finished_episodes_have_raw_scores(stream):
    options = EnvConfig(reward_clip=2.0, reward_scale=0.5)
    rows_stream = stream("toy_count", options=options)
    rows = played(rows_stream, 10)
    assert column(rows, "reward") == [0, 0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert [(episode.env, episode.score, episode.length) for episode in rows_stream.finished] == [
        (0, 55, 10),
        (1, 55, 10),
    ]
    rows_stream.step(zeros(rows[0]))
    assert rows_stream.finished == []


def test_summaries_and_broken_episodes_are_told(stream):
    caught = stream("toy_catch")
    played(caught, 15)
    assert [set(episode.summary) for episode in caught.finished] == [{"success"}] * 2
    crash = stream(lambda: form(toy.Crash(1.0)), max_restarts=2)
    rows = played(crash, 1)
    assert [(episode.broken, episode.length) for episode in crash.finished] == [(True, 1)] * 2
    assert column(rows, "is_last") == [False, True] and column(rows, "is_terminal") == [False, False]
    with pytest.raises(UserError, match="breaks on purpose"):
        for _ in range(3):
            crash.step(zeros(rows[0]))


def test_begin_shows_the_same_each_time(stream):
    rows_stream = stream("toy_count")
    labels = [column(played(rows_stream, 25), "vector") for _ in range(2)]
    assert labels[0] == labels[1]


def test_send_and_receive(stream):
    rows_stream = stream("toy_count", ProcessVector)
    rows = rows_stream.begin()
    with pytest.raises(RuntimeError, match="without send"):
        rows_stream.receive()
    rows_stream.send(zeros(rows))
    with pytest.raises(RuntimeError, match="between send and receive"):
        rows_stream.state()
    assert rows_stream.receive()["reward"].tolist() == [1, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [0, 6, 10, 33])
def test_a_restored_stream_goes_on_exactly(kind, steps, stream, caplog):
    first = stream("toy_catch", kind)
    played(first, steps)
    state = first.state()
    second = stream("toy_catch", kind)
    rows = second.restore(state)
    assert all(np.array_equal(rows[key], value) for key, value in state["rows"].items())
    for _ in range(40):
        left, right = first.step(zeros(rows)), second.step(zeros(rows))
        assert all(np.array_equal(left[key], right[key]) for key in left)
        assert first.finished == second.finished
    assert not caplog.records


class Unseeded(toy.Reach):
    """Is not decided by its seed."""

    def begin(self):
        self.point, self.goal = np.random.default_rng().uniform(-1.0, 1.0, (2, 2))


def test_new_episodes_start_where_restoring_fails(stream, caplog):
    first = stream(lambda: form(Unseeded()))
    first.begin()
    action = np.zeros((2, 2), np.float32)
    first.step(action)
    second = stream(lambda: form(Unseeded()))
    with caplog.at_level(logging.WARNING, "reverie"):
        rows = second.restore(first.state())
    assert rows["is_first"].all()
    (record,) = caplog.records
    assert "new ones start: observation 'vector' is not what it was" in record.getMessage()
    assert not second.step(action)["is_first"].any()


def test_other_counts_and_other_environments_are_not_restored(stream, caplog):
    first = stream("toy_count", count=3)
    first.begin()
    assert stream("toy_count", count=2).restore(first.state())["is_first"].all()
    assert "of 3 environments, there are 2" in caplog.text


def test_any_vector_environment_is_put_in_form(caplog):
    vector = SyncVectorEnv([toy.Timeout] * 3)
    rows_stream = RowStream(vector)
    rows = played(rows_stream, 7)
    assert column(rows, "is_last") == [False] * 5 + [True, False, False]
    assert rows[0]["vector"].shape == (3, 1)
    assert rows_stream.restore(rows_stream.state())["is_first"].all()
    assert "cannot be restored" in caplog.text
    rows_stream.close()


def test_summaries_of_other_vector_environments():
    class Tells(toy.Timeout):
        def step(self, action):
            return (*super().step(action)[:4], {"is_success": True, "summary": {"coins": 3.0}})

    rows_stream = RowStream(SyncVectorEnv([Tells] * 2))
    played(rows_stream, 5)
    assert [episode.summary for episode in rows_stream.finished] == [{"coins": 3.0, "success": 1.0}] * 2


def test_gymnasiums_own_vector_cartpole():
    rows_stream = RowStream(NativeVector(gymnasium.make_vec("CartPole-v1", num_envs=3), 0))
    rows = played(rows_stream, 60)
    first, last = (np.array([row[key] for row in rows]) for key in ("is_first", "is_last"))
    assert last.any() and (first[1:] == last[:-1]).all()
    assert column(played(rows_stream, 5), "vector") == column(rows[:6], "vector")


def test_shifted_actions_of_other_vector_environments():
    class Shifted(toy.Timeout):
        action_space = gymnasium.spaces.Discrete(2, start=5)

        def step(self, action):
            assert action in (5, 6)
            return super().step(action)

    rows_stream = RowStream(SyncVectorEnv([Shifted] * 2))
    rows_stream.begin()
    rows_stream.step(np.array([0, 1]))
    assert rows_stream.action_space == gymnasium.spaces.Discrete(2)


def test_other_autoresets_are_refused():
    with pytest.raises(UserError, match="NEXT_STEP"):
        RowStream(SyncVectorEnv([toy.Timeout], autoreset_mode=AutoresetMode.SAME_STEP))


def test_actions_are_checked(stream):
    rows_stream = stream("toy_reach")
    rows_stream.begin()
    with pytest.raises(UserError, match=r"environment 1: action at index 0 is 3.0, outside of"):
        rows_stream.step(np.array([[0, 0], [3, 0]], np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_pictures(kind, stream):
    rows_stream = stream("toy_catch", kind)
    rows_stream.begin()
    assert [picture.shape for picture in rows_stream.pictures(2)] == [(128, 128, 3)] * 2
    assert [picture.shape for picture in rows_stream.pictures(1)] == [(128, 128, 3)]


def test_images_stand_in_for_pictures():
    rows_stream = RowStream(SyncVectorEnv([lambda: form(toy.Catch(), gray=True, stack=2)] * 2))
    rows = rows_stream.begin()
    pictures = rows_stream.pictures(2)
    assert pictures[1].shape == (32, 32, 3)
    assert np.array_equal(pictures[1][..., 2], rows["image"][1, ..., -1])
    assert RowStream(SyncVectorEnv([toy.Timeout])).pictures(1) == [None]


class Spoils(toy.Count):
    """Shows infinity at the third step of its second episode."""

    episode = 0

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        return super().reset(seed=seed)

    def step(self, action):
        observation, *rest = super().step(action)
        spoiled = self.episode == 2 and self.steps == 3
        return (observation + np.float32(np.inf) if spoiled else observation), *rest


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_not_finite_become_the_end_of_a_broken_episode(kind, stream, caplog):
    rows_stream = stream(lambda: form(Spoils()), kind, checks=False)
    rows_stream.begin()
    rows, broken = [], []
    for _ in range(20):
        rows.append({key: value.copy() for key, value in rows_stream.step(np.zeros(2, np.int64)).items()})
        broken += [episode.length for episode in rows_stream.finished if episode.broken]
    assert all(np.isfinite(row[key]).all() for row in rows for key in ("vector", "reward"))
    assert column(rows[10:15], "is_last") == [False, False, False, True, False]
    assert column(rows[10:15], "is_terminal") == [False] * 5
    assert broken == [3, 3]
    assert "environment 1 (Spoils) broke and is restarted: observation 'vector' has infinity at index 0" in caplog.text


def test_other_vector_environments_that_are_not_finite_stop_the_run():
    rows_stream = RowStream(SyncVectorEnv([Spoils] * 2), checks=False)
    rows_stream.begin()
    with pytest.raises(UserError, match=r"environment 0: observation 'vector' has infinity .*--envs.backend serial"):
        for _ in range(20):
            rows_stream.step(np.zeros(2, np.int64))


def test_actions_that_are_not_finite_reach_no_environment(stream):
    rows_stream = stream("toy_reach")
    rows_stream.begin()
    for _ in range(STEPS):
        rows_stream.step(np.zeros((2, 2), np.float32))
    rows_stream.step(np.full((2, 2), 3e38, np.float32))
    with pytest.raises(UserError, match="the agent chose actions that are not finite"):
        rows_stream.step(np.full((2, 2), np.nan, np.float32))
