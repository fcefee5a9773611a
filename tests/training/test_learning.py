"""Agents that learn: slow, run by `make test-learning`."""

import pytest
import torch

import reverie
from reverie.envs.suites import godot
from reverie.nn.precision import in_half

pytestmark = [pytest.mark.learning, pytest.mark.timeout(900)]


@pytest.mark.parametrize("seed", range(5))
def test_cartpole_is_solved_by_ppo(trained, seed):
    outcome = trained("cartpole_ppo", seed=seed)
    assert outcome.evaluation["mean_return"] >= 475
    assert outcome.recent_return >= 450


SMALL = {"envs__count": 16, "ppo__rollout": 64, "ppo__minibatch": 256, "ppo__lr": 1e-3, "ppo__features": 64}


def test_catching_from_pixels(trained):
    outcome = trained(task="toy_catch", run__steps=60_000, **SMALL)
    assert outcome.evaluation["success_rate"] >= 0.95


def test_hybrid_observations_are_both_used(trained):
    """Blind to the vector an agent catches the ball that counts half the time, blind to the image hardly ever."""
    outcome = trained(task="toy_hybrid", run__steps=250_000, run__eval_episodes=100, **SMALL)
    assert outcome.evaluation["success_rate"] >= 0.7


def test_continuous_actions_reach(trained):
    options = {**SMALL, "ppo__normalize_observation": True, "ppo__epochs": 10, "ppo__entropy": 0.0}
    outcome = trained(task="toy_reach", run__steps=150_000, **options)
    assert outcome.evaluation["success_rate"] >= 0.95


def test_several_choices_at_once(trained):
    random = trained(folder="random", task="toy_multi", agent__name="random", run__steps=2_000)
    outcome = trained(task="toy_multi", run__steps=60_000, **SMALL)
    assert outcome.evaluation["mean_return"] > 2 * max(random.evaluation["mean_return"], 0.0) + 1


def test_the_value_of_a_world_that_only_times_out(trained):
    """Reward 1 for ever, cut every 5 steps: a time-out taken for an end would make the value at most 5, not 10."""
    outcome = trained(
        task="toy_timeout", run__steps=60_000, ppo__gamma=0.9, ppo__lr=3e-3, ppo__epochs=10, run__eval_every=0
    )
    agent = reverie.load(outcome.logdir, checkpoint="latest")
    with agent.make_env() as env:
        agent.act(env.reset(seed=0)[0])
    assert agent.value == pytest.approx(10, abs=0.5)


def test_pendulum_holds_its_level(trained):
    outcome = trained(
        "continuous_ppo", task="gym_Pendulum-v1", run__steps=300_000, run__eval_every=30_000,
        ppo__gamma=0.9, ppo__lr=1e-3, ppo__rollout=128,
    )  # fmt: skip
    assert outcome.evaluation["mean_return"] > -250
    assert outcome.best_return - outcome.evaluation["mean_return"] < 60


def test_the_rover_finds_its_beacons_in_godot(installed, trained):
    installed(godot.SUITE)
    outcome = trained("godot_ppo")
    assert outcome.evaluation["mean_return"] >= 15  # steering by hand has 15, random thrust -1
    assert outcome.evaluation["success_rate"] >= 0.9


@pytest.mark.skipif(not in_half("auto", torch.device("cpu")), reason="this CPU has no instructions for bfloat16")
def test_bfloat16_learns_as_float32_does(trained):
    for precision in ("float32", "bfloat16"):
        outcome = trained(folder=precision, task="toy_catch", run__steps=60_000, ppo__precision=precision, **SMALL)
        assert outcome.evaluation["success_rate"] >= 0.95
