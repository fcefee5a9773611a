"""Pages that a real process serves."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reverie

SOURCE = Path(reverie.__file__).parent.parent


class Page:
    """A process of `reverie dream --web`."""

    def __init__(self, folder: Path, *words: str) -> None:
        command = [sys.executable, "-m", "reverie", "dream", "--web", "--logdir", str(folder), *words]
        places = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, env=places, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", line)
        assert found, line or self.process.communicate()[1]
        self.address, self.port, self.token = found[0], int(found[1]), found[2]

    def interrupt(self) -> tuple[int, str, str]:
        """End it as Ctrl-C does: its status, what else it printed, its errors."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture(scope="module")
def dreaming(tmp_path_factory) -> Callable[..., Path]:
    """The folder of a run of Dreamer that was trained for a moment."""

    def train(task: str, **options) -> Path:
        folder = tmp_path_factory.mktemp("runs") / task
        small = {"run__steps": 80, "run__eval_at_end": False, "run__eval_every": 0, **options}
        reverie.train(reverie.configure("dreamer_v3", "debug", task=task, logdir=str(folder), **small), quiet=True)
        return folder

    return train


@pytest.fixture(scope="module")
def opened() -> Iterator[Callable[..., Page]]:
    """Opens pages of runs; they are gone in the end."""
    pages: list[Page] = []

    def open_page(folder: Path, *words: str) -> Page:
        pages.append(Page(folder, *words))
        return pages[-1]

    yield open_page
    for page in pages:
        page.process.kill()
        page.process.communicate()
