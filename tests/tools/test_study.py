"""Studies: many workers on one, workers that die, budgets that hold, in every kind of storage."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from required import package

optuna = package("optuna")

from optuna.trial import TrialState  # noqa: E402

from reverie.config.errors import UserError  # noqa: E402
from reverie.config.space import Dimension  # noqa: E402
from reverie.tools.storage import open_storage, shown  # noqa: E402
from reverie.tools.study import ATTEMPTS, SILENCE, Chooser, Search, living  # noqa: E402
from waiting import until  # noqa: E402

SPACE = {"a": Dimension(0.0, 1.0), "b": Dimension(choices=(1, 2, 3)), "c": Dimension(1, 8, log=True, whole=True)}
POINTS = tuple({"a": a / 10, "b": 1 + a % 3, "c": 1} for a in range(10))
SERVERS = Path("/usr/lib/postgresql")


def search(url=None, trials=10, pruner=None, **options):
    storage = open_storage(url) if url else optuna.storages.InMemoryStorage()
    study = optuna.create_study(
        storage=storage, study_name="study", direction="maximize", load_if_exists=True, pruner=pruner
    )
    return Search(study, Chooser(SPACE, trials, **options))


@pytest.fixture(scope="module")
def postgresql():
    """The address of a PostgreSQL server of our own."""
    initdb = shutil.which("initdb") or next(map(str, SERVERS.glob("*/bin/initdb")), None)
    if initdb is None:
        pytest.skip("no PostgreSQL server here")
    user = "nobody" if os.getuid() == 0 else None  # it refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="reverie-postgresql-"))
    if user:
        shutil.chown(folder, user)
    programs = Path(initdb).resolve().parent
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "user": user, "cwd": folder}
    subprocess.run([initdb, "-D", folder / "data", "-U", "tester", "-A", "trust", "--no-sync"], check=True, **quiet)
    words = ["-D", folder / "data", "-k", folder, "-h", "", "-F"]  # a socket in the folder alone: ports may be taken
    server = subprocess.Popen([programs / "postgres", *words], **quiet)
    try:
        until(lambda: subprocess.run([programs / "pg_isready", "-h", folder], **quiet).returncode == 0)
        yield f"postgresql+psycopg://tester@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGINT)  # which does not wait for clients
        server.wait(30)
        shutil.rmtree(folder)


WORKER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/../shared"]
from test_study import POINTS, search
found = search(sys.argv[1], points=POINTS if sys.argv[3] == "grid" else ())
while (trial := found.claim()) is not None:
    found.complete(trial, trial.params["a"])
"""


def worked(url: str, kind: str, count: int) -> list:
    """The trials that some workers make of one study, all at once."""
    words = [sys.executable, "-c", WORKER, url, str(Path(__file__).parent), kind]
    workers = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(count)]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
    storage = open_storage(url)
    try:
        return Search(optuna.load_study(study_name="study", storage=storage), Chooser(SPACE, 10)).trials()
    finally:
        if isinstance(storage, optuna.storages.RDBStorage):
            storage.remove_session()
            storage.engine.dispose()


@pytest.mark.parametrize("storage", ["sqlite", "journal", "postgresql"])
def test_workers_share_a_grid_and_no_point_is_tried_twice(storage, tmp_path, request):
    url = {
        "sqlite": lambda: f"sqlite:///{tmp_path}/study.db",
        "journal": lambda: f"journal:{tmp_path}/study.log",
        "postgresql": lambda: request.getfixturevalue("postgresql"),
    }[storage]()
    trials = worked(url, "grid", 2)
    assert all(trial.state == TrialState.COMPLETE for trial in trials)
    assert Counter(trial.params["a"] for trial in trials) == Counter(point["a"] for point in POINTS)


def test_workers_share_a_search_and_its_budget(tmp_path):
    trials = worked(f"sqlite:///{tmp_path}/study.db", "search", 2)
    assert len(trials) == 10
    assert len({trial.params["a"] for trial in trials}) == 10


def test_the_same_seed_makes_the_same_search():
    def points(seed, **options):
        found, points = search(seed=seed, trials=14, **options), []
        while (trial := found.claim()) is not None:
            points.append(trial.params)
            found.complete(trial, -abs(trial.params["a"] - 0.3))
        return points

    assert points(0) == points(0) != points(1)
    assert points(0) != points(0, sampler="random")


def test_a_search_gets_nearer_to_what_is_good():
    found = search(trials=60)
    while (trial := found.claim()) is not None:
        found.complete(trial, -abs(trial.params["a"] - 0.3))
    distances = [-trial.value for trial in found.trials()]
    assert sum(distances[40:]) < 0.5 * sum(distances[:20])


def test_an_interrupted_trial_is_taken_up_again_before_new_ones():
    found = search(trials=2, points=POINTS)
    first = found.claim()
    first.set_user_attr("folder", "trial-0000")
    found.postpone(first)
    again = found.claim()
    assert again.params == first.params and again.user_attrs["folder"] == "trial-0000"
    found.complete(again, 1.0)
    second = found.claim()
    assert second.params == POINTS[1]
    found.complete(second, 2.0)
    assert found.claim() is None
    assert [trial.value for trial in found.trials()] == [1.0, 2.0]


def test_an_interrupted_trial_is_taken_up_even_by_a_worker_with_fewer_trials():
    more = search(trials=3)
    trials = [more.claim() for _ in range(3)]
    more.postpone(trials[2])
    again = Search(more.study, Chooser(SPACE, 1)).claim()
    assert again is not None and again.params == trials[2].params
    assert "superfluous" not in again.user_attrs


def test_trials_of_workers_that_died_are_begun_again_but_not_for_ever(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    dying = "found.claim(); import os; os.kill(os.getpid(), 9)"
    code = WORKER.partition("while")[0] + dying
    for _ in range(ATTEMPTS):
        done = subprocess.run([sys.executable, "-c", code, url, str(Path(__file__).parent), "grid"])
        assert done.returncode == -9
    found = search(url, points=POINTS)
    assert found.claim().params == POINTS[1]
    states = [trial.state for trial in found.trials()]
    assert states == [TrialState.FAIL, TrialState.RUNNING]


def test_workers_of_this_machine_are_known_by_their_process_and_others_by_their_signs():
    found = search()
    trial = found.claim()

    def alive(**attributes):
        for name, value in attributes.items():
            trial.set_user_attr(name, value)
        return living(found.study.trials[0])

    assert alive()
    assert not alive(worker=f"{os.uname().nodename}:{os.getpid()}:1")  # another process with the same number
    assert alive(worker="elsewhere:1:1")
    assert not alive(beat=time.time() - SILENCE - 1)
    found.beat(trial)
    assert alive()


def test_bad_trials_end_early_by_their_evaluations():
    found = search(pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_min_trials=3))
    for _ in range(3):
        trial = found.claim()
        assert not any(found.report(trial, number, 100.0 * number) for number in (1, 2, 3))
        found.complete(trial, 300.0)
    bad, good = found.claim(), found.claim()
    assert found.report(bad, 1, 20.0)
    assert not found.report(good, 1, 150.0)
    found.prune(bad)
    assert [trial.state for trial in found.trials()][3] == TrialState.PRUNED


def test_more_trials_may_be_added_later(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    for budget in (3, 5):
        found = search(url, trials=budget)
        while (trial := found.claim()) is not None:
            found.complete(trial, 0.0)
        assert len(found.trials()) == budget


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nothing://here", "Can't load plugin"),
        ("no address", "Could not parse"),
        ("sqlite:////none/of/these/study.db", "unable to open"),
        ("journal:/none/of/these/study.log", "No such file"),
    ],
)
def test_storages_that_cannot_be_opened_are_told_in_a_line(url, words):
    with pytest.raises(UserError, match=words) as caught:
        open_storage(url)
    assert "\n" not in str(caught.value)


def test_passwords_are_not_shown():
    assert shown("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert shown("sqlite:///file") == "sqlite:///file"
