"""Evaluations: which episodes count, and what becomes of those that do not end."""

import logging
from statistics import fmean

import pytest

import reverie
from reverie.build import make_parts
from reverie.training import evaluate


@pytest.fixture
def evaluated():
    """The evaluation of an untrained agent on Pendulum, whose episodes end after 200 steps."""

    def found(episodes, envs):
        options = {"run__eval_episodes": episodes, "run__eval_envs": envs, "run__eval_videos": 0}
        parts = make_parts(reverie.configure("continuous_ppo", task="gym_Pendulum-v1", **options))
        try:
            return parts.evaluator.evaluate(parts.agent)
        finally:
            parts.close()

    return found


def test_every_environment_plays_its_share(evaluated):
    result = evaluated(5, 2)
    assert sorted(episode.env for episode in result.episodes) == [0, 0, 0, 1, 1]
    figures, scores = result.summary(), [episode.score for episode in result.episodes]
    assert figures["mean_return"] == fmean(scores) and figures["episodes"] == 5
    assert (figures["min_return"], figures["max_return"]) == (min(scores), max(scores))
    assert figures["median_return"] == sorted(scores)[2] and figures["mean_length"] == 200


def test_episodes_that_do_not_end_are_cut_and_said_to_be(evaluated, monkeypatch, caplog):
    monkeypatch.setattr(evaluate, "LONGEST_EPISODE", 50)
    with caplog.at_level(logging.WARNING, "reverie"):
        result = evaluated(2, 2)
    assert [episode.length for episode in result.episodes] == [50, 50]
    assert "2 of 2 episodes of the evaluation did not end within 50 steps" in caplog.text


def test_an_episode_that_ends_with_the_last_step_is_not_cut(evaluated, monkeypatch, caplog):
    monkeypatch.setattr(evaluate, "LONGEST_EPISODE", 200)
    assert [episode.length for episode in evaluated(2, 2).episodes] == [200, 200]
    assert not caplog.text
