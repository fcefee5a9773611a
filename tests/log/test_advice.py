import json
import math

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import reverie
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
    assert advice(HEALTHY, "ppo", actions=7) == []
    assert advice({}, "ppo") == []


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
    (line,) = advice(HEALTHY | change, "ppo", actions=7)
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
    assert advice(HEALTHY | change, "ppo", actions=7) == []


def test_entropy_is_judged_by_the_number_of_actions():
    low = {"time/progress": 0.4, "train/entropy": 0.09}
    assert advice(low, "ppo", actions=2) == []
    assert advice(low, "ppo", actions=18) != []
    assert advice(low, "ppo") != []
    assert advice(low, "ppo", actions=0) == []
    assert advice({"time/progress": 0.4, "train/entropy": -3.0}, "ppo") == []


def test_figures_are_judged_by_their_mean():
    spike = {"train/approx_kl": 0.2}
    calm = [{"train/approx_kl": 0.0}] * 4
    assert advice(spike, "ppo") != []
    assert advice(spike, "ppo", calm) == []


def test_the_adviser_does_not_nag():
    adviser = Adviser("ppo", every=10, window=3)
    said = [adviser.lines({"train/approx_kl": 0.2}) for _ in range(25)]
    assert [index for index, lines in enumerate(said) if lines] == [2, 12, 22]


def test_divergence_is_told_at_once():
    assert Adviser("ppo", window=5).lines({"train/value_loss": math.nan}) != []


def test_dreamer_is_not_advised_as_ppo_is():
    calm = {"train/entropy": 0.01, "train/approx_kl": 0.2, "time/progress": 0.5}
    for family in ("dreamer", "other"):
        assert advice(calm, family, actions=4) == []
        assert advice(calm | {"train/skipped": 0.0}, family, actions=4) == []
    (line,) = advice(calm | {"train/actor_loss": math.nan}, "dreamer", actions=4)
    assert "skipped" in line and "--optim.model.lr" in line


@pytest.mark.parametrize("family", ["on_policy_ppo", "imagined_ppo"])
def test_ppo_on_a_world_model_is_advised_as_ppo_is(family):
    learning = HEALTHY | {"train/skipped": 0.0}
    assert advice(learning, family, actions=7) == []
    (line,) = advice(learning | {"train/clip_fraction": 0.6}, family, actions=7)
    assert "clip_fraction 0.60" in line
    (line,) = advice(learning | {"train/approx_kl": 0.2}, family, actions=7)
    assert ("target_kl" in line) == (family == "on_policy_ppo")  # epochs over dreams do not stop early
    (line,) = advice(learning | {"train/explained_variance": 0.4}, family, actions=7)
    assert "--ppo.epochs" in line
    (line,) = advice(learning | {"train/policy_loss": math.nan}, family, actions=7)
    assert "skipped" in line and "--ppo.lr" in line
    (line,) = advice(learning | {"world/kl": math.nan}, family, actions=7)
    assert "--optim.model.lr" in line


def test_a_run_is_advised_by_what_its_agent_is(tmp_path):
    options = {
        "agent__policy": "on_policy_ppo",
        "ppo__lr": 0.3,
        "device": "cpu",
        "run__eval_videos": 0,
        "log__every": 1,
    }
    reverie.train(reverie.configure("cartpole", "debug", **options, logdir=str(tmp_path)), quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert any("train/skipped" in line for line in lines)
    found = EventAccumulator(str(tmp_path)).Reload().Tensors("advice/text_summary")
    assert any(b"approx_kl" in each.tensor_proto.string_val[0] for each in found)


def test_ppo_that_skips_is_told_its_own_learning_rate():
    (line,) = advice(HEALTHY | {"train/skipped": 8.0, "train/policy_loss": math.nan}, "ppo", actions=7)
    assert "skipped" in line and "--ppo.lr" in line
