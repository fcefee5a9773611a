import math

import pytest

from reverie.log.advice import Adviser, advice

HEALTHY = {
    "time/progress": 0.6,
    "train/approx_kl": 0.01,
    "train/clip_fraction": 0.2,
    "train/entropy": 0.8,
    "train/explained_variance": 0.9,
    "train/policy_loss": -0.01,
}


def test_a_healthy_run_needs_no_advice():
    assert advice(HEALTHY, actions=7) == []
    assert advice({}) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train/approx_kl": 0.06}, "approx_kl 0.060 is above 0.05"),
        ({"train/clip_fraction": 0.51}, "clip_fraction 0.51 is above 0.5"),
        ({"train/clip_fraction": 0.04}, "clip_fraction 0.040 is below 0.05"),
        ({"train/entropy": 0.09}, "entropy 0.090 is below 0.1"),
        ({"train/entropy": 1.6}, "no clear strategy"),
        ({"train/explained_variance": -0.1}, "worse than a constant"),
        ({"train/explained_variance": 0.4}, "advantages are noisy"),
        ({"train/policy_loss": math.nan}, "train/policy_loss not finite"),
        ({"world/kl": math.inf}, "world/kl not finite"),
    ],
)
def test_each_threshold(change, words):
    (line,) = advice(HEALTHY | change, actions=7)
    assert words in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "change",
    [
        {"train/approx_kl": 0.05},
        {"train/explained_variance": 0.4, "time/progress": 0.3},
        {"train/explained_variance": -0.1, "time/progress": 0.05},
        {"train/explained_variance": math.nan},
        {"train/entropy": 0.05, "time/progress": 0.9},
        {"train/clip_fraction": 0.01, "time/progress": 0.9},
    ],
)
def test_what_is_normal_is_not_advised_on(change):
    assert advice(HEALTHY | change, actions=7) == []


def test_entropy_is_judged_by_the_number_of_actions():
    low = {"time/progress": 0.4, "train/entropy": 0.09}
    assert advice(low, actions=2) == []
    assert advice(low, actions=18) != []
    assert advice(low) != []
    assert advice(low, actions=0) == []
    assert advice({"time/progress": 0.4, "train/entropy": -3.0}) == []


def test_figures_are_judged_by_their_mean():
    spike = {"train/approx_kl": 0.2}
    calm = [{"train/approx_kl": 0.0}] * 4
    assert advice(spike) != []
    assert advice(spike, calm) == []


def test_the_adviser_does_not_nag():
    adviser = Adviser(every=10, window=3)
    said = [adviser.lines({"train/approx_kl": 0.2}) for _ in range(25)]
    assert [index for index, lines in enumerate(said) if lines] == [2, 12, 22]


def test_divergence_is_told_at_once():
    assert Adviser(window=5).lines({"train/value_loss": math.nan}) != []


def test_dreamer_is_not_advised_as_ppo_is():
    calm = {"train/skipped": 0.0, "train/entropy": 0.01, "time/progress": 0.5}
    assert advice(calm, actions=4) == []
    (line,) = advice(calm | {"train/actor_loss": float("nan")}, actions=4)
    assert "skipped" in line and "--optim.model.lr" in line
