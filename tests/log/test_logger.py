import io
import math

import numpy as np
import pytest
import torch

from reverie.data.counters import Counters
from reverie.data.rows import Episode
from reverie.log.logger import Logger
from reverie.log.means import Means


class Memory:
    """A sink that keeps what it is given."""

    def __init__(self):
        self.writes = []
        self.advice = []
        self.closed = 0

    def write(self, step, scalars, videos):
        self.writes.append((step, scalars, videos))

    def advise(self, step, lines):
        self.advice.append((step, lines))

    def close(self):
        self.closed += 1


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_metrics_are_means_since_the_last_write():
    logger = Logger([])
    logger.add({"train/a": torch.tensor(1.0), "train/b": 10.0})
    logger.add({"train/a": torch.tensor(3.0)})
    logger.add({"train/b": 20, "train/c": torch.tensor([1.0, 2.0, 6.0]), "train/a": torch.tensor([5.0])})
    scalars = logger.write(Counters(step=1))
    assert {name: scalars[name] for name in ("train/a", "train/b", "train/c")} == {
        "train/a": 3.0,
        "train/b": 15.0,
        "train/c": 3.0,
    }
    assert "train/a" not in logger.write(Counters(step=2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool])
def test_tensors_of_any_type_can_be_added(dtype):
    means = Means()
    means.add({"a": torch.tensor(1, dtype=dtype), "b": torch.tensor(0.5)})
    assert means.take() == {"a": 1.0, "b": 0.5}


def test_a_metric_reused_in_place_keeps_its_old_value():
    means, value = Means(), torch.tensor(1.0)
    means.add({"a": value})
    value.fill_(5.0)
    means.add({"a": value})
    assert means.take() == {"a": 3.0}


def test_metrics_with_gradients_or_of_inference_mode_are_taken():
    means = Means()
    with torch.inference_mode():
        means.add({"a": torch.tensor(1.0)})
    means.add({"a": torch.tensor(2.0, requires_grad=True) * 2})
    assert means.take() == {"a": 2.5}


def test_nothing_leaves_the_device_before_the_write():
    means = Means()
    means.add({"a": torch.ones((), device="meta"), "b": torch.ones(3, device="meta")})
    means.add({"a": torch.ones((), device="meta"), "b": torch.ones(3, device="meta")})
    with pytest.raises(NotImplementedError):  # a meta tensor has no value: only `take` asks for one
        means.take()


def test_a_nan_stays_visible():
    logger = Logger([])
    logger.add({"train/value_loss": torch.tensor(1.0)})
    logger.add({"train/value_loss": torch.tensor(math.nan)})
    assert math.isnan(logger.write(Counters(step=1))["train/value_loss"])


def test_speeds_progress_and_time_left():
    clock = Clock()
    logger = Logger([], frames_per_step=4, clock=clock)
    clock.now += 2
    scalars = logger.write(Counters(step=200, updates=10, total=1000))
    assert (scalars["time/sps"], scalars["time/fps"], scalars["time/ups"]) == (100.0, 400.0, 5.0)
    assert (scalars["time/eta"], scalars["time/progress"], scalars["time"]) == (8.0, 0.2, 2.0)
    assert (scalars["frames"], scalars["updates"]) == (800.0, 10.0)
    clock.now += 1
    scalars = logger.write(Counters(step=500, frames=3000, updates=10, total=1000))
    assert (scalars["time/sps"], scalars["time/fps"], scalars["time/ups"]) == (300.0, 2200.0, 0.0)
    assert scalars["time/eta"] == 3.0  # 500 steps took 3 s, 500 are left


def test_pauses_count_in_the_time_but_not_in_speeds():
    clock = Clock()
    logger = Logger([], clock=clock)
    logger.start(Counters(total=400))
    clock.now += 1
    with logger.paused():
        clock.now += 60
    clock.now += 1
    scalars = logger.write(Counters(step=200, frames=200, updates=20, total=400))
    assert (scalars["time/sps"], scalars["time/fps"], scalars["time/ups"]) == (100.0, 100.0, 10.0)
    assert (scalars["time/eta"], scalars["time"]) == (2.0, 62.0)


def test_encoding_videos_does_not_slow_down_the_speeds():
    class Slow(Memory):
        def write(self, step, scalars, videos):
            clock.now += 30

    clock = Clock()
    logger = Logger([Slow()], clock=clock)
    clock.now += 1
    logger.video("eval/episodes", np.zeros((4, 8, 8, 3), np.uint8))
    logger.write(Counters(step=100, total=300))
    clock.now += 1
    scalars = logger.write(Counters(step=200, total=300))
    assert (scalars["time/sps"], scalars["time/eta"], scalars["time"]) == (100.0, 1.0, 32.0)
    clock.now += 1
    assert logger.write(Counters(step=331, total=400))["time/sps"] == pytest.approx(131 / 31)  # other writes count


def test_a_second_write_of_a_step_has_no_speed_and_the_next_counts_the_time_between():
    clock = Clock()
    logger = Logger([], clock=clock)
    clock.now += 1
    logger.write(Counters(step=100, total=200))
    clock.now += 1
    assert "time/sps" not in logger.write(Counters(step=100, total=200))
    clock.now += 1
    scalars = logger.write(Counters(step=200, total=200))
    assert scalars["time/sps"] == 50.0
    assert (scalars["time/eta"], scalars["time/progress"]) == (0.0, 1.0)


def test_a_resumed_logger_goes_on_in_time_and_returns():
    clock = Clock()
    old = Logger([], clock=clock)
    old.episodes([Episode(0, 10.0, 5)])
    clock.now += 7
    file = io.BytesIO()
    torch.save(old.state_dict(), file)
    file.seek(0)
    new = Logger([], clock=clock)
    new.load_state_dict(torch.load(file, weights_only=True))
    clock.now += 1
    scalars = new.write(Counters(step=1000, total=2000))
    assert scalars["time"] == 8.0
    assert scalars["episode/recent_mean"] == 10.0
    assert "time/sps" not in scalars and "time/eta" not in scalars  # 1,000 steps were not made in this one second
    clock.now += 1
    assert new.write(Counters(step=1100, total=2000))["time/sps"] == 100.0


def test_what_was_not_written_yet_is_written_by_a_resumed_logger():
    old, whole = Logger([]), Logger([])
    for logger in (old, whole):
        logger.add({"train/a": torch.tensor(1.0), "train/b": 4.0})
        logger.episodes([Episode(0, 10.0, 5, summary={"coins": 2.0})])
    file = io.BytesIO()
    torch.save(old.state_dict(), file)
    file.seek(0)
    new = Logger([])
    new.load_state_dict(torch.load(file, weights_only=True))
    for logger in (new, whole):
        logger.add({"train/a": torch.tensor(2.0), "train/b": 6.0})
    found, wanted = new.write(Counters(step=10)), whole.write(Counters(step=10))
    assert (found["train/a"], found["train/b"], found["episode/coins"]) == (1.5, 5.0, 2.0)
    assert {name: found[name] for name in wanted if not name.startswith("time")} == {
        name: value for name, value in wanted.items() if not name.startswith("time")
    }


def test_start_measures_from_the_counts_given():
    clock = Clock()
    logger = Logger([], clock=clock)
    clock.now += 60  # building environments is not training
    logger.start(Counters(step=1000, frames=1000, updates=5, elapsed=30.0))
    clock.now += 2
    scalars = logger.write(Counters(step=1100, frames=1100, updates=7))
    assert (scalars["time/sps"], scalars["time/ups"], scalars["time"]) == (50.0, 1.0, 32.0)


def test_episodes_of_the_window_and_recent_ones():
    logger = Logger([])
    logger.episodes([Episode(0, 10.0, 5)])
    logger.write(Counters(step=1))
    logger.episodes([Episode(0, 30.0, 5, summary={"success": 1.0}), Episode(1, 0.0, 1, broken=True)])
    scalars = logger.write(Counters(step=2))
    assert (scalars["episode/return"], scalars["episode/success_rate"], scalars["episode/broken"]) == (30.0, 1.0, 1.0)
    assert (scalars["episode/recent_mean"], scalars["episode/recent_best"]) == (20.0, 30.0)
    assert "episode/return" not in logger.write(Counters(step=3))


def test_videos_go_to_every_sink_once():
    sinks = [Memory(), Memory()]
    logger = Logger(sinks)
    logger.video("eval/episodes", np.zeros((4, 8, 8, 1), np.uint8), fps=30)
    logger.write(Counters(step=7))
    logger.write(Counters(step=8))
    for sink in sinks:
        (step, _, videos), (_, _, none) = sink.writes
        assert step == 7 and none == {}
        assert videos["eval/episodes"].shape == (4, 8, 8, 3)
        assert videos["eval/episodes"].fps == 30


def test_advice_reaches_sinks_that_listen_once():
    class Deaf(Memory):
        advise = None

    sink = Memory()
    logger = Logger([sink, Deaf()], family="ppo")
    for step in range(10):
        logger.add({"train/approx_kl": 0.2})
        logger.write(Counters(step=step, total=20))
    assert len(sink.advice) == 1
    assert "approx_kl 0.200" in sink.advice[0][1][0]


def test_all_sinks_close_even_if_one_fails():
    class Failing(Memory):
        def close(self):
            raise RuntimeError("no")

    last = Memory()
    logger = Logger([Failing(), last])
    with pytest.raises(RuntimeError, match="no"):
        logger.close()
    logger.close()
    assert last.closed == 1
