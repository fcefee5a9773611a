import sys

import numpy as np
import pytest

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs.registry import make_env
from reverie.envs.rows import RowStream
from reverie.envs.vector import make_vector

SOURCE = """
import gymnasium
import numpy as np


class Good(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)


class Old(Good):
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, {}


class OldReset(Good):
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32)


class Spaceless(gymnasium.Env):
    pass


class Plain:
    pass


class Needy(Good):
    def __init__(self, size, *, colour):
        pass


class Wrapped(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(Good())


class Failing(Good):
    def __init__(self):
        raise ValueError("no map")


class Absent(Good):
    def __init__(self):
        raise RuntimeError("no simulator")


def made():
    return Good()


number = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """A user's folder with a module in it, as the current directory."""
    (tmp_path / "users_own.py").write_text(SOURCE)
    (tmp_path / "half.py").write_text("import not_installed_anywhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("users_own", "half"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["Good", "Wrapped", "made"])
def test_a_class_or_a_function_of_the_current_directory(name):
    env = make_env(f"users_own:{name}", EnvConfig())
    assert env.reset(seed=0)[0]["vector"].tolist() == [0, 0]
    assert env.step(1)[1] == 1.0


def test_it_can_draw():
    env = make_env("users_own:Good", EnvConfig())
    env.reset()
    assert env.render().shape == (8, 8, 3)


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_it_runs_in_both_backends(backend):
    stream = RowStream(make_vector("users_own:Good", EnvConfig(), EnvsConfig(count=2, backend=backend), 0))
    stream.begin()
    assert stream.step(np.zeros(2, np.int64))["reward"].tolist() == [1, 1]
    stream.close()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("nowhere:Env", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("half:Env", "cannot be imported: ModuleNotFoundError: No module named 'not_installed_anywhere'"),
        ("users_own:Goood", "has no class or function 'Goood': did you mean Good"),
        ("users_own:number", "has no class or function 'number'"),
        ("users_own:", "is incomplete: write module:Class"),
        ("users_own:Plain", "is not a Gymnasium environment but a Plain"),
        ("users_own:Spaceless", "has no observation_space"),
        ("users_own:Needy", "needs the arguments size, colour"),
        ("users_own:Failing", r"users_own:Failing cannot be made: ValueError: no map \(users_own.py:\d+\): mend it"),
    ],
)
def test_mistakes_are_told_in_one_line(task, words):
    with pytest.raises(UserError, match=words) as caught:
        make_env(task, EnvConfig())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [1, 2])
def test_one_that_may_come_up_later_is_tried_again_and_then_told(count):
    with pytest.raises(UserError, match=r"broke 2 times in a row .* RuntimeError: no simulator"):
        make_vector("users_own:Absent", EnvConfig(), EnvsConfig(count=count, max_restarts=2), 0)


def test_the_old_interface_is_told():
    env = make_env("users_own:Old", EnvConfig())
    env.reset()
    with pytest.raises(UserError, match=r"users_own:Old: step.. returned 4 values"):
        env.step(0)
    with pytest.raises(UserError, match=r"users_own:OldReset: reset.. must return"):
        make_env("users_own:OldReset", EnvConfig()).reset()
