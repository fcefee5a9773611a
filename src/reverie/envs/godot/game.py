"""A game as a process of its own: found, started, connected, asked, and ended for sure."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from typing import IO

from ...config.errors import UserError, ending
from .wire import Message, Wire

MOST_WORDS = 1 << 20
"""Bytes of what a game prints that are kept at most."""

PATIENCE = 0.1
"""Seconds between two looks at whether a game that starts is still alive."""

VERSION = {"major_version": "0", "minor_version": "7"}
"""Of the protocol."""


@dataclass(frozen=True)
class Launch:
    """How a game is started."""

    command: tuple[str, ...]
    """The program and its arguments, but for the port."""
    timeout: float
    """Seconds it may take to start, or to answer."""


class Game:
    """A running game and the wire to it.

    It is killed when it is closed, when it is forgotten, and when the process that started it dies in any way: a game
    that hangs does not notice that nobody listens any more.
    """

    def __init__(self, launch: Launch) -> None:
        self.words: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (`ended` closes it)
        with socket.create_server(("127.0.0.1", 0)) as listener:  # the system chooses a free port
            port = listener.getsockname()[1]
            own = (f"--port={port}", f"--env_seed={port}")  # a seed for games that ask for no other
            self.process = started([*launch.command, *own], self.words)
            self.end = weakref.finalize(self, ended, self.process, self.words)
            try:
                self.wire = Wire(self.connection(listener, launch.timeout), launch.timeout)
            except BaseException:
                self.end()
                raise
        self.hang_up = weakref.finalize(self, self.wire.close)

    def connection(self, listener: socket.socket, timeout: float) -> socket.socket:
        """The connection that the game makes."""
        listener.settimeout(PATIENCE)
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            try:
                return listener.accept()[0]
            except TimeoutError:
                if (status := self.process.poll()) is not None:
                    kind = ConnectionError if status < 0 else UserError  # one that gives up would do so again
                    raise kind(f"the game did not start: {self.last_words()}") from None
        raise TimeoutError(f"the game did not connect within {timeout:g} s")

    def introduce(self) -> Message:
        """What the game says of itself."""
        self.wire.send({"type": "handshake", **VERSION})
        return self.ask({"type": "env_info"}, "env_info")

    def ask(self, message: Message, kind: str) -> Message:
        """The answer to a message; an error that says how the game ended, if it did."""
        try:
            self.wire.send(message)
            return self.wire.receive(kind)
        except TimeoutError:
            raise TimeoutError(f"the game did not answer within {self.wire.connection.gettimeout():g} s") from None
        except ConnectionError as error:
            raise ConnectionError(f"{error}: {self.last_words()}") from None

    def last_words(self) -> str:
        """How the game ended, and the last line it printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        self.words.seek(0)
        lines = map(str.strip, self.words.read().decode(errors="replace").splitlines())
        said = [line for line in lines if line and not line.startswith("At: ")]  # places in Godot's own source
        return f"{fate(self.process.returncode)}" + (f" after it said {said[-1]!r}" if said else "")

    def trim(self) -> None:
        """Forget what the game printed, once it is much."""
        if os.fstat(self.words.fileno()).st_size > MOST_WORDS:
            self.words.truncate(0)

    def close(self) -> None:
        """End the game."""
        self.hang_up()
        self.end()


def started(command: list[str], words: IO[bytes]) -> subprocess.Popen[bytes]:
    """The process of a game.

    A session of its own keeps Ctrl-C from it, which the trainer answers by saving first. The kernel kills it when this
    thread ends, which is as good as this process only where it is the main one.
    """
    main = threading.current_thread() is threading.main_thread()
    leash = ["setpriv", "--pdeathsig", "KILL"] if main and shutil.which("setpriv") else []
    return subprocess.Popen(
        [*leash, *command], stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True
    )


def ended(process: subprocess.Popen[bytes], words: IO[bytes]) -> None:
    """Kill a game and what it started, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    words.close()


def fate(status: int | None) -> str:
    """A phrase for how a process ended."""
    if status is None:
        return "it still runs"
    return f"it {ending(status)}"
