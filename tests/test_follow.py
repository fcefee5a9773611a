"""Which candidates of a run are evaluated."""

import os

from reverie.follow import candidates
from reverie.log.sinks.jsonl import GuestSink
from reverie.training import checkpoint
from reverie.training.lock import Lock


def put(folder, step, age=0.0):
    """Put down a candidate, as if so many seconds ago, and later than those of earlier steps."""
    path = folder / checkpoint.FOLDER / "candidate.pt"
    checkpoint.save(path, {"counters": {"step": step}})
    # the clock of a file system may stand still for as long as this takes
    then = path.stat().st_mtime - age + step / 100
    os.utime(path, (then, then))


def steps(found):
    return [saved["counters"]["step"] for _, saved in found]


def test_a_candidate_is_loaded_once_and_evaluated_once(tmp_path, monkeypatch):
    loads, load = [], checkpoint.load
    monkeypatch.setattr(checkpoint, "load", lambda path: loads.append(path) or load(path))
    looks = []

    def look(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            put(tmp_path, 20)
        elif len(looks) == 5:
            lock.__exit__()

    monkeypatch.setattr("time.sleep", look)
    lock = Lock(tmp_path).__enter__()
    put(tmp_path, 10)
    assert steps(candidates(tmp_path)) == [10, 20] and len(loads) == 2 and len(looks) == 5


def test_what_was_left_over_is_not_evaluated_by_a_resumed_run(tmp_path, monkeypatch):
    put(tmp_path, 50, age=100)
    lock = Lock(tmp_path).__enter__()
    monkeypatch.setattr("time.sleep", lambda seconds: (put(tmp_path, 40), lock.__exit__()))
    assert steps(candidates(tmp_path)) == [40]


def test_the_last_candidate_of_a_run_that_has_ended_is_evaluated_once(tmp_path):
    put(tmp_path, 50, age=100)
    with Lock(tmp_path):
        pass
    assert steps(candidates(tmp_path)) == [50]
    GuestSink(tmp_path / "metrics.jsonl").write(50, {"eval/mean_return": 1.0}, {})
    assert steps(candidates(tmp_path)) == []
