"""How long a run will take."""

from reverie.data.counters import Counters
from reverie.log.pace import Pace


def test_the_time_left_goes_by_steps_that_learn_once_there_are_some():
    now = 0.0
    pace, counters = Pace(lambda: now), Counters(total=1000)
    pace.start(counters, 0)
    for _ in range(3):  # 100 steps a second, nothing learned
        now, counters.step = now + 1, counters.step + 100
        assert pace.measure(counters, 0)["time/eta"] == (1000 - counters.step) / 100
    for _ in range(2):  # 10 steps a second
        now, counters.step, counters.updates = now + 1, counters.step + 10, counters.updates + 5
        assert pace.measure(counters, 0)["time/eta"] == (1000 - counters.step) / 10


def test_the_time_left_of_a_run_that_never_learns_goes_by_all_steps():
    now = 0.0
    pace, counters = Pace(lambda: now, window=3), Counters(total=1000)
    pace.start(counters, 0)
    for speed in (10, 20, 30, 40):
        now, counters.step = now + 1, counters.step + speed
        found = pace.measure(counters, 0)
    assert found["time/eta"] == 900 / 30
