"""Dreamers that learn: slow, run by `make test-learning`."""

import json

import pytest

import reverie

pytestmark = [pytest.mark.learning, pytest.mark.timeout(1800)]

SMALL = {
    "envs__count": 4, "run__threads": 1,
    "world__deter": 128, "world__hidden": 64, "world__units": 64, "world__layers": 2,
    "behavior__units": 64, "behavior__actor_layers": 2, "behavior__critic_layers": 2, "behavior__horizon": 12,
    "behavior__starts": 8,
    "replay__batch": 16, "replay__length": 16, "replay__ratio": 64, "replay__capacity": 100_000,
    "replay__prefill": 500, "replay__warmup": 1000,
    "optim__lr_end": 0.1, "optim__model__lr": 1e-3, "optim__actor__lr": 3e-4, "optim__critic__lr": 1e-3,
}  # fmt: skip
"""Widths and learning rates for a minute or two on one core."""


def trained(tmp_path, *presets, **options):
    """The outcome of a run."""
    options = {"run__eval_videos": 0, "log__tensorboard": False, "run__eval_episodes": 20, **options}
    config = reverie.configure(*presets, logdir=str(tmp_path / "run"), **options)
    return reverie.train(config, quiet=True)


@pytest.mark.parametrize("seed", range(5))
def test_the_default_solves_cartpole(tmp_path, seed):
    outcome = trained(tmp_path, "cartpole", seed=seed)
    assert outcome.evaluation["mean_return"] >= 400


@pytest.mark.parametrize(
    ("preset", "latent"),
    [("dreamer_v1", {"world__groups": 16}), ("dreamer_v2", {"world__groups": 8, "world__classes": 8})],
)
def test_earlier_generations_learn_cartpole(tmp_path, preset, latent):
    """V1 learns through the dynamics and its straight-through actions, V2 by REINFORCE with a target critic."""
    outcome = trained(
        tmp_path, preset, task="gym_CartPole-v1", run__steps=10_000, run__eval_every=2_500, **SMALL, **latent
    )
    assert outcome.best_return >= 150  # a random policy has 20


def test_pendulum_is_learned_and_held_to_the_end(tmp_path):
    outcome = trained(tmp_path, "pendulum")
    lines = [json.loads(line) for line in (outcome.logdir / "metrics.jsonl").read_text().splitlines()]
    scores = [line["eval/mean_return"] for line in lines if "eval/mean_return" in line]
    assert scores[-1] > -200
    assert min(scores[len(scores) // 2 :]) > -250
