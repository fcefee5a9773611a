"""The Godot suite against a real Godot: what it shows, and what becomes of one that dies, hangs or is left alone."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig, EnvsConfig, GodotConfig
from reverie.envs.registry import Suite, make_env
from reverie.envs.suites.godot import OWN, SUITE, GodotEnv, make
from reverie.envs.vector import make_vector

ROVER = "godot_rover"
QUICK = EnvConfig(godot=GodotConfig(timeout=2.0))


@pytest.fixture(autouse=True)
def _installed(installed: Callable[[Suite], Suite]) -> None:
    installed(SUITE)


@pytest.fixture
def rover() -> Iterator[GodotEnv]:
    env = make("rover", EnvConfig(), True)
    assert isinstance(env, GodotEnv)
    yield env
    env.close()


def games(root: int) -> set[int]:
    """The processes of Godot among the descendants of a process."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
    family = {root}
    while more := {process for process, parent in parents.items() if parent in family} - family:
        family |= more
    return {process for process in family if str(OWN) in command(process)}


def gone(processes: set[int], within: float = 10.0) -> bool:
    """Whether processes have ended, or do so in time."""
    limit = time.monotonic() + within
    while (left := any(map(command, processes))) and time.monotonic() < limit:
        time.sleep(0.05)
    return not left


def command(process: int) -> str:
    """The words a process was started with; empty if it has ended, collected by its parent or not."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def played(env: Any, seed: int, steps: int) -> list[Any]:
    """What an episode of random actions shows."""
    random = np.random.default_rng(seed)
    rows = [env.reset(seed=seed)[0]["vector"].tolist()]
    for _ in range(steps):
        observation, reward, *_ = env.step(random.uniform(-1, 1, 2).astype(np.float32))
        rows.append((observation["vector"].tolist(), reward))
    return rows


def steered(observation: dict[str, np.ndarray]) -> np.ndarray:
    """An action that drives to the beacon without shooting past it."""
    velocity, way = observation["vector"][2:4], observation["vector"][4:]
    return np.clip(3 * way - 1.5 * velocity, -1, 1).astype(np.float32)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_it(rover: GodotEnv) -> None:
    check_env(rover, skip_render_check=True)
    assert rover.action_space == Box(-1, 1, (2,), np.float32)


def test_episodes_are_those_of_their_seeds(rover: GodotEnv) -> None:
    first = played(rover, 1, 20)
    assert first != played(rover, 2, 20)
    assert first == played(rover, 1, 20)


def test_beacons_pay_and_time_runs_out(rover: GodotEnv) -> None:
    observation, _ = rover.reset(seed=0)
    rewards, ended = [], False
    while not ended:
        observation, reward, terminated, truncated, info = rover.step(steered(observation))
        rewards.append(reward)
        ended = terminated or truncated
    assert (terminated, truncated) == (False, True) and len(rewards) == 100
    assert info["success"] and info["summary"]["beacons"] == sum(reward > 0.9 for reward in rewards) >= 5


def test_falling_off_is_a_real_end_that_costs(rover: GodotEnv) -> None:
    rover.reset(seed=0)
    reward, terminated, truncated = 0.0, False, False
    while not (terminated or truncated):
        observation, reward, terminated, truncated, info = rover.step(np.array([1, 0], np.float32))
    assert terminated and reward < -0.9 and not info["success"]
    assert 1.0 < observation["vector"][0] < 1.02  # the frames of the action that were left are not played


def test_an_action_is_played_for_as_many_frames_as_asked() -> None:
    ways = {}
    for repeat in (1, 8):
        with make_env(ROVER, EnvConfig(repeat=repeat)) as env:
            first = env.reset(seed=5)[0]["vector"]
            for _ in range(8 // repeat):
                last = env.step(np.array([0.5, -0.5], np.float32))[0]["vector"]
            ways[repeat] = last - first
    np.testing.assert_allclose(ways[1], ways[8], atol=1e-5)
    assert np.abs(ways[1][:2]).min() > 0.01


@pytest.mark.parametrize("backend", ["serial", "process"])
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_game_that_dies_or_hangs_is_restarted(backend: Any, blow: signal.Signals, caplog: Any) -> None:
    vector = make_vector(ROVER, QUICK, EnvsConfig(count=3, workers=2, backend=backend), seed=0)
    try:
        vector.reset()
        first = games(os.getpid())
        assert len(first) == 3
        os.kill(min(first), blow)
        actions = np.full((3, 2), 0.1, np.float32)
        with caplog.at_level(logging.WARNING, "reverie"):
            _, _, terminated, truncated, infos = vector.step(actions)
        assert truncated.tolist() == infos["broken"].tolist() and truncated.sum() == 1 and not terminated.any()
        told = "killed by signal 9" if blow == signal.SIGKILL else "did not answer within 2 s"
        assert "broke and is restarted" in caplog.text and told in caplog.text
        broken = int(truncated.argmax())
        assert not vector.step(actions)[4]["broken"].any()
        moved = [vector.step(actions)[0]["vector"][broken, :2].copy() for _ in range(2)]
        assert not np.array_equal(*moved)
        later = games(os.getpid())
        assert len(later) == 3 and len(later - first) == 1
    finally:
        vector.close()
    assert gone(first | later, 5)


PROGRAM = """
import sys, time
import numpy as np
from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs.vector import make_vector

if __name__ == "__main__":
    vector = make_vector("godot_rover", EnvConfig(), EnvsConfig(count=2, backend=sys.argv[1]), seed=0)
    vector.reset()
    print("ready", flush=True)
    while sys.argv[2] == "for ever":
        vector.step(np.zeros((2, 2), np.float32))
    sys.stdin.read()
"""


@pytest.mark.parametrize("backend", ["serial", "process"])
@pytest.mark.parametrize("end", ["forgotten", "killed", "killed while one hangs", "interrupted"])
def test_no_game_outlives_the_program(tmp_path: Path, backend: str, end: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    words = [sys.executable, str(file), backend, "once" if end == "forgotten" else "for ever"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, start_new_session=True, **pipes) as program:
        assert program.stdout and program.stdout.readline() == b"ready\n"
        mine = games(program.pid)
        assert len(mine) == 2
        if end == "interrupted":
            os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        elif end == "forgotten":
            program.communicate()
        else:
            os.kill(min(mine), signal.SIGSTOP if end == "killed while one hangs" else signal.SIGCONT)
            program.kill()
    assert gone(mine), end


def test_the_camera_asks_for_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="needs a display: put xvfb-run -a before"):
        make("rover", EnvConfig(godot=GodotConfig(camera=True)), True)


@pytest.fixture
def display(installed: Callable[[Suite], Suite], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A screen that nobody sees."""
    installed(Suite("godot's camera", "", make, list, install="apt install xvfb", programs=("Xvfb",)))
    installed(Suite("godot's camera", "", make, list, install="apt install godot3", programs=("godot3",)))
    read, write = os.pipe()
    words = ["Xvfb", "-displayfd", str(write), "-screen", "0", "640x480x24", "-nolisten", "tcp"]
    with subprocess.Popen(words, pass_fds=[write], stderr=subprocess.DEVNULL) as server:
        os.close(write)
        with os.fdopen(read) as told:
            monkeypatch.setenv("DISPLAY", f":{told.readline().strip()}")
        yield
        server.terminate()


def test_the_camera_sees_what_the_vector_tells(display: None) -> None:
    with make_env(ROVER, EnvConfig(godot=GodotConfig(camera=True))) as env:
        rows = [env.reset(seed=0)[0]] + [env.step(np.ones(2, np.float32))[0] for _ in range(3)] + [env.reset(seed=1)[0]]
        assert env.observation_space["camera_2d"] == Box(0, 255, (64, 64, 3), np.uint8)
        assert np.array_equal(env.render(), rows[-1]["camera_2d"])
    for row in rows:
        image, vector = row["camera_2d"].astype(int), row["vector"]
        green = np.argwhere(image[..., 1] - image[..., 0] > 100).mean(0)
        yellow = np.argwhere(image[..., 0] - image[..., 2] > 100).mean(0)
        np.testing.assert_allclose(green[::-1], 31.5 + 30 * vector[:2], atol=0.75)
        np.testing.assert_allclose(yellow[::-1], 31.5 + 30 * (vector[:2] + vector[4:]), atol=1.5)  # may be half hidden


def exported(folder: Path, spaces: str, agents: int = 1) -> str:
    """The task of a game of someone else's: a program that speaks the protocol as older plugins do."""
    file = folder / "game.x86_64"
    file.write_text(GAME.format(python=sys.executable, spaces=spaces, agents=agents))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return f"godot_{file}"


GAME = """#!{python}
import json, socket, struct, sys
options = dict(word.lstrip("-").split("=") for word in sys.argv if "=" in word)
wire = socket.create_connection(("127.0.0.1", int(options["port"]))).makefile("rwb")
def say(**message):
    text = json.dumps(message).encode()
    wire.write(struct.pack("<I", len(text)) + text)
    wire.flush()
while head := wire.read(4):
    message = json.loads(wire.read(*struct.unpack("<I", head)))
    if message["type"] == "env_info":
        say(type="env_info", n_agents={agents}, {spaces})
    elif message["type"] == "reset":
        count = 0
        say(type="reset", obs=[{{"obs": [count, 0]}}])
    elif message["type"] == "action":
        count += message["action"][0]["turn"]
        assert sys.argv.count("--headless") == 1 and options["action_repeat"] == "8"
        say(type="step", obs=[{{"obs": [count, 1]}}], reward=[0.5], done=[count > 3])
"""
OLD = """observation_space={{"obs": {{"size": [2], "space": "box"}}}}, \\
        action_space={{"turn": {{"size": 3, "action_type": "discrete"}}}}""".replace("{{", "{").replace("}}", "}")


def test_an_exported_game_is_played(tmp_path: Path) -> None:
    with make_env(exported(tmp_path, OLD), EnvConfig()) as env:
        assert env.action_space == Discrete(3)
        assert env.reset(seed=0)[0]["obs"].tolist() == [0, 0]
        assert env.step(np.int64(2))[1:4] == (0.5, False, False)
        observation, _, terminated, truncated, info = env.step(np.int64(2))
        assert observation["obs"].tolist() == [4, 1] and terminated and not truncated and info == {}


def test_a_game_of_several_agents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 2 agents"):
        make_env(exported(tmp_path, OLD, agents=2), EnvConfig())


def test_what_is_not_there_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"unknown task 'godot_rower' .*: did you mean godot_rover"):
        make_env("godot_rower", EnvConfig())
    with pytest.raises(UserError, match="unknown task 'godot_/"):
        make_env(f"godot_{tmp_path}", EnvConfig())
    with pytest.raises(UserError, match="did not start: it ended with status 1"):
        make_env(ROVER, EnvConfig(godot=GodotConfig(program="false")))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert SUITE.absent() == ["godot3-server"]
    with pytest.raises(
        UserError, match=r"needs godot3-server or .*: apt install godot3-server \(Debian\), or give --env"
    ):
        make_env(ROVER, EnvConfig())
