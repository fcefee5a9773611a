"""A game as a process: what is told of one that does not play, and that nothing of it is left."""

import os

import pytest

from reverie.config.errors import UserError
from reverie.envs.godot import game
from reverie.envs.godot.game import Game, Launch
from running import alive
from waiting import until


def shell(script, timeout=10.0):
    return Launch(("sh", "-c", script, "sh"), timeout)


def test_one_that_gives_up_is_a_fault_of_the_users_and_told_with_its_last_words():
    with pytest.raises(UserError, match=r"did not start: it ended with status 3 after it said 'ERROR: no such scene'$"):
        Game(shell("echo hello; echo 'ERROR: no such scene' >&2; echo '   At: main.cpp:1' >&2; exit 3"))


def test_one_that_crashes_may_be_started_again():
    with pytest.raises(ConnectionError, match=r"did not start: it was killed by signal 11$"):
        Game(shell("kill -SEGV $$"))


def test_one_that_never_connects_is_killed_with_all_it_started(tmp_path):
    file = tmp_path / "child"
    with pytest.raises(TimeoutError, match=r"did not connect within 3 s"):
        Game(shell(f"sleep 600 & echo $! > {file}; wait", timeout=3.0))
    child = int(file.read_text())
    assert until(lambda: not alive(child))


TALKER = """
import socket, sys, time
port = next(word for word in sys.argv if word.startswith("--port="))
wire = socket.create_connection(("127.0.0.1", int(port.partition("=")[2])))
print("x" * 5000, flush=True)
wire.recv(1)
"""


def test_what_a_game_prints_is_not_kept_without_end(monkeypatch):
    monkeypatch.setattr(game, "MOST_WORDS", 1000)
    running = Game(Launch(("python3", "-c", TALKER), 60.0))
    until(lambda: os.fstat(running.words.fileno()).st_size > 5000)
    running.trim()
    assert os.fstat(running.words.fileno()).st_size == 0
    running.close()
    running.close()
    assert running.process.returncode is not None and running.words.closed
