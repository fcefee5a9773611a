"""The process that forks generators: lost while it starts, it is started again, a few times."""

import os
import signal
from contextlib import closing, contextmanager

import pytest

from reverie.collect import nursery
from reverie.config.errors import UserError
from reverie.envs.crew import without_main


@pytest.fixture
def lossy(monkeypatch):
    """A nursery whose process is killed so many times as soon as it has started."""

    def made(deaths):
        left = [None] * deaths

        @contextmanager
        def deadly():
            with without_main():
                yield
            if left:
                left.pop()
                os.kill(made.process.pid, signal.SIGKILL)

        made = nursery.Nursery(lambda pipe, orders, files: pipe.send(orders), None)
        monkeypatch.setattr(nursery, "without_main", deadly)
        return closing(made)

    monkeypatch.setattr(nursery, "PAUSE", 0.01)
    return made


def test_it_may_be_lost_twice_in_a_row(lossy):
    ours, theirs = nursery.multiprocessing.Pipe()
    with lossy(2) as starts, ours:
        with theirs:
            number = starts.launch("hello", [theirs.fileno()])
        assert ours.recv() == "hello"
        assert starts.end(number) == "ended with status 0"


def test_one_that_is_lost_again_and_again_is_an_error_in_one_line(lossy):
    with lossy(100) as starts, pytest.raises(UserError, match=r"lost 4 times in a row: look for .*memory"):
        starts.launch("hello", [0])
    assert starts.process is None
