"""Measuring: times by a clock that the tests turn, operations of known products, tables that line up."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.ppo import PPO
from reverie.config.schema import Config, PPOConfig
from reverie.data.replay import Replay
from reverie.tools.bench import Stopwatch, Timing, device_name, flops_of, peak_bytes, product_rate
from reverie.tools.bench_rows import Fiction, observed
from reverie.tools.bench_table import FIGURES, columns, metric, percent, table

CPU = torch.device("cpu")
ROOT = Path(__file__).parent.parent.parent


class Clock:
    """A clock that calls move on."""

    def __init__(self, *seconds: float) -> None:
        self.now, self.calls, self.seconds = 0.0, 0, seconds

    def __call__(self) -> float:
        return self.now

    def work(self) -> None:
        """Take the next of the seconds, the last of them from then on."""
        self.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
        self.calls += 1


def test_a_repeat_takes_its_share_of_the_seconds():
    clock = Clock(0.01)
    timing = Stopwatch(CPU, repeats=4, seconds=2.0, clock=clock).measure(clock.work)
    assert timing.seconds == pytest.approx([0.01] * 4)
    assert timing.calls == clock.calls == 1 + 2 + 4 + 8 + 16 + 4 * 50
    assert (timing.rate, timing.milliseconds, timing.spread) == pytest.approx((100, 10, 0))


def test_calls_longer_than_a_repeat_are_made_once_each():
    clock = Clock(7.0, 3.0, 1.0, 2.0)
    timing = Stopwatch(CPU, repeats=3, seconds=9.0, clock=clock).measure(clock.work)
    assert timing.seconds == (3.0, 1.0, 2.0)
    assert timing.median == 2.0
    assert timing.spread == 1.0
    assert clock.calls == timing.calls == 4


def test_what_takes_longer_than_the_seconds_is_measured_once():
    clock = Clock(7.0, 3.0)
    timing = Stopwatch(CPU, repeats=3, seconds=6.0, clock=clock).measure(clock.work)
    assert (timing.seconds, timing.calls, timing.spread, clock.calls) == ((7.0,), 1, 0.0, 1)


def test_a_block_is_the_time_of_all_its_calls():
    clock = Clock(5.0, 1.0)
    watch = Stopwatch(CPU, clock=clock)
    assert watch.block(clock.work, 4) == 8.0
    assert watch.shorter(0.1).seconds == pytest.approx(watch.seconds / 10)
    assert watch.shorter(0.1).clock is clock


def test_the_median_is_not_moved_by_one_slow_repeat():
    assert Timing((1.0, 1.0, 90.0), 3).median == 1.0


def test_flops_of_a_product_and_of_its_gradients():
    left, right = torch.zeros(3, 5), torch.zeros(5, 7, requires_grad=True)
    assert flops_of(lambda: left @ right) == 2 * 3 * 5 * 7
    assert flops_of(lambda: (left @ right).sum().backward()) == 2 * (2 * 3 * 5 * 7)
    assert flops_of(lambda: left + 1) == 0


def test_the_rate_of_a_device_is_that_of_its_product():
    clock = Clock(0.5)
    found = product_rate(Timed(CPU, 2, 1.0, clock))
    assert found == pytest.approx(2 * 1024**3 / 0.5)


class Timed(Stopwatch):
    """A stopwatch whose clock moves on with every call."""

    def block(self, function, calls):
        def both():
            function()
            self.clock.work()

        return super().block(both, calls)


def test_the_machine_is_known():
    assert device_name(CPU)
    block = torch.ones(30_000_000)
    assert peak_bytes(CPU) > block.numel() * block.element_size()


SPACES = {
    "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "wide": spaces.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (3,), np.float32),
    "narrow": spaces.Box(np.float32(0.25), np.float32(0.5), (2,), np.float32),
    "class": spaces.Discrete(3),
    "classes": spaces.MultiDiscrete([2, 5]),
    "bits": spaces.MultiBinary(4),
}


@pytest.mark.parametrize("name", SPACES)
def test_made_up_observations_belong_to_their_space(name):
    space = SPACES[name]
    made = observed(space, (50, 2), np.random.default_rng(0))
    assert made.shape == (50, 2, *space.shape)
    for each in made.reshape(100, *space.shape):
        assert space.contains(np.asarray(each).astype(space.dtype)[()])
    assert np.abs(made).max() < 1e3
    assert len(np.unique(made)) > 1


def test_made_up_rows_fill_a_replay_and_carry_what_acting_adds():
    space = spaces.Dict({"image": SPACES["image"], "vector": SPACES["narrow"]})
    agent = PPO(space, spaces.Discrete(3), Config(ppo=PPOConfig(features=8, units=8)), CPU)
    fiction = Fiction(agent, space, spaces.Discrete(3), 2, CPU)
    rows = fiction.rows(300)
    assert torch.equal(rows["is_first"][1:], rows["is_last"][:-1])
    assert rows["is_last"].any() and not (rows["is_terminal"] & ~rows["is_last"]).any()
    assert set(rows["action"].unique().tolist()) == {0, 1, 2}
    played = fiction.played(5)
    value = agent.net({name: column[3] for name, column in played.items()})[1]
    assert torch.allclose(played["value"][3], value, atol=1e-5)
    replay = Replay(2, 2000, device=CPU, selectors={"uniform": 1.0})
    fiction.fill(replay, 700, batch=4, length=8)
    assert 700 <= len(replay) < 2000
    fiction.fill(replay, 5000, batch=4, length=8)
    assert len(replay) == 2000
    assert replay.sample(4, 8)["image"].shape == (4, 8, 4, 4, 3)


def test_columns_line_up():
    assert columns([("a", "1", "22"), ("bbb", "10", "2")]) == ["  a     1  22", "  bbb  10   2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(12.3456, "12.35"), (0.0123456, "0.01235"), (5678.9, "5,679"), (1_234_567, "1.23 M"), (0, "0")],
)
def test_figures_have_about_four_digits(value, text):
    assert metric(value) == text


def test_a_table_shows_the_figures_and_the_parts():
    report = {"subject": "learner", "agent": "dreamer", "task": "toy_catch", "device": "cpu", "device_name": "Abacus"}
    report |= {"torch": "2.0", "updates_per_second": 12.5, "flops": 3e12, "device_share": 0.25, "peak_bytes": 5_000_000}
    report["parts"] = [{"part": "scan", "forward_ms": 1.0, "ms": 2.5, "share": 0.5}]
    shown = table(report)
    assert shown.splitlines()[0] == "learner: dreamer on toy_catch, cpu (Abacus), torch 2.0"
    for label, value in (("updates/s", "12.5"), ("FLOPs of an update", "3.00 TFLOP"), ("share of it", "25.0 %")):
        assert re.search(rf"^  {label} +{value}$", shown, re.MULTILINE)
    assert re.search(r"^  peak memory +5.0 MB$", shown, re.MULTILINE)
    assert re.search(r"^  scan +1.000 +2.500 +50.0 %$", shown, re.MULTILINE)
    assert percent(0.1234) == "12.3 %"


def test_every_figure_is_explained():
    text = (ROOT / "docs/operations.md").read_text().partition("## Measure speed")[2]
    assert not [name for name in FIGURES if f"`{name}`" not in text]
