import copy
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs import crew, toy
from reverie.envs.process import ProcessVector, shares
from reverie.envs.wrappers import standard
from running import alive
from waiting import until

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module in every import mode


def form(env):
    return standard(env, EnvConfig(), 1, frozenset())


def make_vector(env, count=4, **settings):
    settings = {"count": count, "workers": 2, **settings}
    return ProcessVector([lambda: form(env())] * count, 0, EnvsConfig(**settings))


def steps_of(vector, count):
    return [copy.deepcopy(vector.step(np.zeros(vector.num_envs, np.int64))) for _ in range(count)]


class Hostile(toy.Count):
    """Kills its own process when an action says so."""

    def step(self, action):
        if action == 1 and self.steps == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Hangs(toy.Count):
    def step(self, action):
        if action == 1 and self.steps == 3:
            time.sleep(600)
        return super().step(action)


class Modules(toy.Count):
    def step(self, action):
        figures = {"torch": "torch" in sys.modules, "main": hasattr(sys.modules["__main__"], "pytest")}
        return (*super().step(action)[:4], {"summary": figures})


def test_environments_are_shared_out_evenly():
    assert shares(5, 2) == [[0, 1, 2], [3, 4]]
    assert shares(2, 8) == [[0], [1]]


def test_workers_run_without_torch_and_without_the_main_program():
    vector = make_vector(Modules, 2)
    vector.reset()
    *_, infos = steps_of(vector, 10)[-1]
    vector.close()
    assert infos["summary"] == [{"torch": 0.0, "main": 0.0}] * 2


def test_what_is_returned_stays_valid_until_the_step_after_next():
    vector = make_vector(toy.Count)
    first, _ = vector.reset()
    second = vector.step(np.zeros(4, np.int64))[0]
    assert first["vector"][:, 0].tolist() == [0] * 4 and second["vector"][:, 0].tolist() == [1] * 4
    vector.close()


@pytest.mark.parametrize("when", ["between steps", "during a step"])
def test_a_killed_worker_is_replaced_and_the_others_go_on(when, caplog):
    vector = make_vector(Hostile)
    vector.reset()
    before = steps_of(vector, 3)[-1][0]["vector"].copy()
    actions = np.zeros(4, np.int64)
    if when == "between steps":
        os.kill(vector.crews[0].process.pid, signal.SIGKILL)
    else:
        actions[1] = 1
    with caplog.at_level(logging.WARNING, "reverie"):
        observation, reward, terminated, truncated, infos = vector.step(actions)
    assert observation["vector"][:2].tolist() == before[:2].tolist()  # the last one again
    assert observation["vector"][2:, 0].tolist() == [4, 4]
    assert truncated.tolist() == infos["broken"].tolist() == [True, True, False, False]
    assert reward.tolist() == [0, 0, 4, 4] and not terminated.any()
    assert "was killed by signal 9" in caplog.text and len(caplog.records) == 1
    after = steps_of(vector, 8)
    assert [step[0]["vector"][0, 0] for step in after] == [*range(8)]
    assert [step[0]["vector"][3, 0] for step in after] == [5, 6, 7, 8, 9, 10, 0, 1]
    assert after[0][0]["vector"][0, 1] != before[0, 1]  # another episode, another seed
    vector.close()


def test_a_slot_between_episodes_begins_one_when_its_worker_is_replaced():
    vector = make_vector(Hostile, 2, workers=1)
    vector.reset()
    ended = steps_of(vector, 10)[-1]
    assert ended[2].all()
    os.kill(vector.crews[0].process.pid, signal.SIGKILL)
    observation, _, terminated, truncated, infos = steps_of(vector, 1)[0]
    assert observation["vector"][:, 0].tolist() == [0, 0]
    assert not (terminated | truncated | infos["broken"]).any()
    vector.close()


def test_a_hanging_environment_is_replaced(caplog):
    vector = make_vector(Hangs, timeout=100.0)
    vector.reset()
    steps_of(vector, 3)
    hanging = vector.crews[1]
    assert hanging.settings.timeout == 100.0
    hanging.settings = replace(hanging.settings, timeout=2.0)  # only now: a busy machine may take longer than that
    begin = time.monotonic()
    *_, truncated, infos = vector.step(np.array([0, 0, 1, 0]))
    assert time.monotonic() - begin < 50
    assert truncated.tolist() == infos["broken"].tolist() == [False, False, True, True]
    assert "environment 2" in caplog.text and "did not answer within 2 s" in caplog.text
    vector.close()


def test_an_environment_that_kills_its_worker_again_and_again_stops_the_run():
    vector = make_vector(Hostile, 2, max_restarts=3)
    vector.reset()
    with pytest.raises(UserError, match=r"environment 1 broke 3 times in a row .* was killed by signal 9"):
        for _ in range(60):
            vector.step(np.array([0, 1]))
    vector.close()


class Dies(toy.Count):
    def __init__(self):
        os._exit(3)


def test_an_environment_that_dies_while_it_is_built_stops_the_run():
    with pytest.raises(UserError, match=r"environment 0 broke 2 times .* ended with status 3"):
        make_vector(Dies, 1, max_restarts=2)


class Raises(toy.Count):
    def step(self, action):
        raise ValueError("a wheel came off")


def test_errors_and_warnings_of_workers_reach_the_parent(caplog):
    vector = make_vector(Raises, 1, max_restarts=2)
    vector.reset()
    with pytest.raises(UserError, match=r"broke 2 times .* ValueError: a wheel came off"):
        steps_of(vector, 3)
    assert "ValueError: a wheel came off" in caplog.text
    vector.close()


class Refuses(toy.Count):
    def __init__(self):
        raise UserError("install it first")


def test_a_user_error_passes_through():
    with pytest.raises(UserError, match="install it first"):
        make_vector(Refuses)


def test_different_spaces_are_refused():
    with pytest.raises(UserError, match="environment 1 has another observation space"):
        ProcessVector([lambda: form(toy.Count()), lambda: form(toy.Timeout())], 0, EnvsConfig())


def test_workers_end_by_themselves_when_closed_which_can_be_repeated(monkeypatch):
    monkeypatch.setattr(crew, "CLOSING", 100.0)  # when they would be killed
    vector = make_vector(Hangs)
    vector.reset()
    pids = [each.process.pid for each in vector.crews]
    begin = time.monotonic()
    vector.close()
    vector.close()
    assert time.monotonic() - begin < 50
    assert not any(map(alive, pids))


def test_workers_ignore_an_interrupt():
    vector = make_vector(toy.Count)
    vector.reset()
    for each in vector.crews:
        os.kill(each.process.pid, signal.SIGINT)
    *_, infos = steps_of(vector, 1)[0]
    assert not infos["broken"].any()
    vector.close()


PROGRAM = """
import logging, os, signal, sys, time
import numpy as np
from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs.process import ProcessVector
from reverie.envs.vector import Maker

vector = ProcessVector([Maker("toy_count", EnvConfig())] * 2, 0, EnvsConfig(workers=2))
vector.reset()
vector.step(np.zeros(2, np.int64))
print(*[crew.process.pid for crew in vector.crews], flush=True)
if sys.argv[1] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "close":
    vector.close()
"""


@pytest.mark.parametrize("end", ["die", "close", "forget"])
def test_workers_never_outlive_their_parent_and_leave_nothing(end, tmp_path):
    program = tmp_path / "program.py"  # without an `if __name__` guard, on purpose
    program.write_text(textwrap.dedent(PROGRAM))
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-W", "always", program, end],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.stderr == ""
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    assert until(lambda: not any(map(alive, pids)))
