import time

import numpy as np
import pytest

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs import toy, vector
from reverie.envs.process import ProcessVector
from reverie.envs.rows import RowStream
from reverie.envs.serial import SerialVector
from reverie.envs.suites import toy as suite
from reverie.envs.vector import NativeVector, make_vector


@pytest.fixture
def slow(monkeypatch):
    """The steps taken by an environment that is slow at each."""
    steps = []

    class Slow(toy.Count):
        def step(self, action):
            steps.append(action)
            time.sleep(0.15)
            return super().step(action)

    monkeypatch.setitem(suite.TOYS, "count", Slow)
    return steps


def kind_of(task, **settings):
    made = make_vector(task, EnvConfig(), EnvsConfig(**{"count": 2, "workers": 2, **settings}), 0)
    made.close()
    return type(made)


@pytest.mark.parametrize(("backend", "kind"), [("serial", SerialVector), ("process", ProcessVector)])
def test_the_backend_asked_for(backend, kind):
    assert kind_of("toy_catch", backend=backend) is kind


def test_cheap_environments_run_in_this_process():
    assert kind_of("toy_count") is SerialVector


def test_costly_environments_run_in_processes(slow, monkeypatch):
    monkeypatch.setattr(vector, "core_count", lambda: 2)
    assert vector.chosen_backend(vector.Maker("toy_count", EnvConfig()), 8) == "process"
    assert 1 <= len(slow) <= 3  # of 200 that cheap ones are timed by


@pytest.mark.parametrize(("count", "cores"), [(1, 8), (8, 1)])
def test_one_environment_or_one_core_needs_no_process(count, cores, slow, monkeypatch):
    monkeypatch.setattr(vector, "core_count", lambda: cores)
    assert vector.chosen_backend(vector.Maker("toy_count", EnvConfig()), count) == "serial" and not slow


def test_an_environment_that_breaks_while_it_is_timed_goes_to_processes(monkeypatch):
    monkeypatch.setitem(suite.TOYS, "crash", lambda render_mode: toy.Crash(1.0))
    monkeypatch.setattr(vector, "core_count", lambda: 2)
    assert vector.chosen_backend(vector.Maker("toy_crash", EnvConfig()), 8) == "process"


def test_a_suites_own_vector_environment_is_preferred():
    made = make_vector("gym_CartPole-v1", EnvConfig(), EnvsConfig(count=3), 0)
    assert isinstance(made, NativeVector)
    assert RowStream(made).begin()["vector"].shape == (3, 4)
    made.close()


def test_a_native_vector_that_is_not_there_is_an_error():
    with pytest.raises(UserError, match="'toy_count' has no vector environment of its own"):
        kind_of("toy_count", backend="native")


def test_native_seeds_decide_and_go_on():
    made = [make_vector("gym_CartPole-v1", EnvConfig(), EnvsConfig(count=2), seed) for seed in (0, 0, 1)]
    left, right, other = (np.array([vector.reset()[0] for _ in range(2)]) for vector in made)
    assert np.array_equal(left, right) and not np.isclose(left, other).any()
    assert not np.isclose(left[0], left[1]).any()


def test_the_count_can_be_given_apart():
    made = make_vector("toy_count", EnvConfig(), EnvsConfig(count=8), 0, count=1)
    assert made.num_envs == 1
    with pytest.raises(UserError, match="at least one"):
        make_vector("toy_count", EnvConfig(), EnvsConfig(), 0, count=0)


def test_unknown_tasks_are_told_before_anything_starts():
    with pytest.raises(UserError, match="did you mean toy_catch"):
        kind_of("toy_cathc", backend="process")
