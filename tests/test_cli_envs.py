"""The command `reverie envs`: the list of suites, and a close look at a task."""


def test_envs_lists_suites_and_checks_a_task(call):
    status, out, _ = call("envs")
    assert status == 0
    assert "crafter" in out
    status, out, _ = call("envs", "--check", "toy_catch")
    assert status == 0
    assert "steps/s" in out
    assert "from -1 to 1, by chance alone" in out
    assert "image" in out
    assert "is_first" in out


def test_envs_checks_a_task_with_options(call):
    options = ["--env.size", "16", "--env.stack", "3", "--envs.count", "2"]
    status, out, _ = call("envs", "--check", "toy_catch", *options)
    assert status == 0
    assert "(16, 16, 9)" in out
    assert "2 environments" in out


def test_options_for_images_of_a_task_without_any_are_told(call, caplog):
    status, out, _ = call("envs", "--check", "gym_CartPole-v1", "--env.gray", "True", "--env.size", "64")
    assert status == 0 and "--env.size, --env.gray: nothing to do here, as gym_CartPole-v1 shows no images" in out
    assert "nothing to do" not in call("envs", "--check", "toy_catch", "--env.size", "32")[1]
    call("envs", "--check", "toy_catch", "--env.atari.sticky", "0.5")
    assert "--env.atari.sticky does nothing here: it is for tasks of atari, not for toy_catch" in caplog.text


def test_envs_tells_the_same_warning_once(call):
    status, out, err = call("envs", "--check", "toy_crash", "--envs.max_restarts", "1000")
    assert status == 0
    assert out.count("breaks on purpose") == 1
    assert " x environment 0 (toy_crash) broke" in out
    assert "purpose" not in err


BROKEN = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Broken(gymnasium.Env):
    observation_space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (3,)), c=spaces.Box(-1, 1, (3,)))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"a": 0, "b": np.zeros(3, np.float32), "c": np.zeros(2, np.float32)}, {}

    def step(self, action):
        return {"a": 5, "b": np.full(3, np.nan, np.float32), "c": np.zeros(2, np.float32)}, None, False, False, {}


class Strange(Broken):
    observation_space = spaces.Dict({"a": spaces.Text(3)})
    action_space = spaces.Box(0, 3, (2,), np.int64)
"""


FAILING = """
import gymnasium
from gymnasium import spaces


class Failing(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)

    def __init__(self):
        raise ValueError("no map")


gymnasium.register("Failing-v0", entry_point=Failing)
"""


def test_an_environment_that_cannot_be_made_is_told(call, tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    status, _, err = call("envs", "--check", "failing:Failing")
    assert status == 2 and "failing:Failing cannot be made: ValueError: no map" in err
    assert len(err.strip().splitlines()) == 1
    status, _, err = call("envs", "--imports", "failing", "--check", "gym_Failing-v0")
    assert status == 2 and "ValueError: no map (failing.py:" in err and "Traceback" not in err


def test_envs_tells_all_faults_in_one_line(call, tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    status, _, err = call("envs", "--check", "faulty:Broken")
    assert status == 2
    assert len(err.strip().splitlines()) == 1
    for fault in ("'a' is 5, outside", "'b' has NaN", "'c' has shape (2,)", "the reward is None"):
        assert err.count(fault) == 1
    status, _, err = call("envs", "--check", "faulty:Strange")
    assert status == 2
    assert "Text space" in err and "action space is a Box of int64" in err
