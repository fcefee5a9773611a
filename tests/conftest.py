"""What all tests share."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import reverie
from reverie.cli import main
from reverie.envs.registry import Suite
from reverie.nn.native.machine import Unfit, machine

# started in the background, a program ignores Ctrl-C, and so would all those that tests start
signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)  # for what modules set up


FIRST = (
    "test_nothing_lost", "test_kernel", "test_ray", "test_compiled", "test_cli_sweep_workers", "test_changeover",
    "test_cli_sweep", "test_compilers", "test_cli_launch", "test_resume", "test_examples", "test_plan2explore_compiled",
    "test_page", "test_steps", "test_process", "test_docs", "test_ranks", "test_mario", "test_generated_runs",
    "test_report", "test_cli_train", "test_machine", "test_godot", "test_rssm", "test_export", "test_fit", "test_study",
    "test_atari", "test_stores", "test_episodes_mlflow", "test_cli_bench", "test_web", "test_dmc", "test_dream",
)  # fmt: skip
"""Files that take longest, those that wait between those that compute: none of them is to be begun last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest files come first."""
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(FIRST)))


@pytest.fixture(autouse=True)
def one_thread():
    """One torch thread, whatever a test before has set: several processes run at once."""
    torch.set_num_threads(1)


@pytest.fixture(params=[1, 2])
def threads(request) -> Iterator[int]:
    """So many torch threads for a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def installed() -> Callable[[Suite], Suite]:
    """A check to call with a suite: skips the test where its packages or programs are missing, fails it in CI."""

    def check(suite: Suite) -> Suite:
        if missing := suite.absent():
            report = pytest.fail if os.environ.get("CI") else pytest.skip
            report(f"{suite.name} needs {', '.join(missing)}: {suite.install}")
        return suite

    return check


@pytest.fixture(scope="session")
def c_compiler() -> None:
    """Skips a test where programs of layers cannot be compiled, fails it in CI."""
    try:
        machine()
    except Unfit as reason:
        report = pytest.fail if os.environ.get("CI") else pytest.skip
        report(str(reason))


@pytest.fixture
def call(capsys) -> Callable[..., tuple[int, str, str]]:
    """The command, called with these words: its exit status, output and errors."""

    def called(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return called


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of a short run of PPO."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    reverie.train(reverie.configure("cartpole_ppo", "debug", logdir=str(folder)), quiet=True)
    return folder


@pytest.fixture(scope="session")
def short_trials() -> list[str]:
    """Words of `reverie sweep` that make trials of a second or two."""
    return ["--configs", "cartpole_ppo", "debug", "--run.eval_videos", "0", "--log.tensorboard", "False"]


@pytest.fixture(scope="session")
def sweeping() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts `reverie sweep` with these words, in a process of its own; what still runs in the end is killed."""
    started: list[subprocess.Popen] = []

    def start(*words: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "reverie", "sweep", *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def trials_of() -> Callable[[Path], list[dict[str, str]]]:
    """Reads the table of trials in a sweep's folder."""

    def read(folder: Path) -> list[dict[str, str]]:
        with (folder / "trials.csv").open() as file:
            return list(csv.DictReader(file))

    return read
