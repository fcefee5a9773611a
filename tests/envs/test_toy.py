import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from reverie.config.schema import EnvConfig
from reverie.envs import toy
from reverie.envs.registry import make_env
from reverie.envs.suites.toy import TOYS

ALIKE = ("timeout", "crash", "memory", "recall", "corridor")
"""Toys whose episodes may begin alike."""


@pytest.mark.parametrize("name", TOYS)
def test_gymnasium_finds_no_fault(name):
    env = TOYS[name](render_mode="rgb_array")
    if name == "crash":
        env.probability = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(spec|render_mode).*")
        check_env(env)


@pytest.mark.parametrize("name", TOYS)
def test_every_toy_can_be_made_drawn_and_repeated(name):
    left, right = (make_env(f"toy_{name}", EnvConfig()) for _ in range(2))
    assert not same(left.reset(seed=1)[0], right.reset(seed=2)[0]) or name in ALIKE
    assert same(left.reset(seed=3)[0], right.reset(seed=3)[0])
    left.action_space.seed(0)
    picture = left.render()
    assert picture.dtype == np.uint8 and picture.shape[2] == 3
    for _ in range(3):
        action = left.action_space.sample()
        one, other = left.step(action), right.step(action)
        assert same(one[0], other[0]) and one[1:4] == other[1:4]


def same(left, right):
    return all(np.array_equal(left[key], right[key]) for key in left)


def score(env, policy, seed):
    observation, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, info = env.step(policy(env, observation))
        total, ended = total + reward, terminated or truncated
    return total, info


def chase(env, observation):
    return int(np.sign(env.target - env.paddle)) + 1


@pytest.mark.parametrize("kind", [toy.Catch, toy.SmallCatch, toy.Hybrid])
def test_the_ball_can_always_be_caught(kind):
    env = kind()
    assert all(score(env, chase, seed) == (1.0, {"success": True}) for seed in range(200))


@pytest.mark.parametrize(("kind", "share"), [(toy.Catch, 3 / 16), (toy.SmallCatch, 3 / 8)])
def test_standing_still_mostly_misses(kind, share):
    env = kind()
    caught = [score(env, lambda env, observation: 1, seed)[1]["success"] for seed in range(200)]
    assert np.mean(caught) == pytest.approx(share, abs=0.1)


def hybrid_starts():
    """All (balls, which of them counts) that an episode can begin with, and what is seen at the start of each."""
    found = {}
    for seed in range(2000):
        env = toy.Hybrid()
        observation, _ = env.reset(seed=seed)
        found[tuple(env.balls), env.which] = observation
    return found


def test_one_part_alone_does_not_tell_where_to_be():
    """Whatever a policy does, the paddle is in one place in the end, and covers the cells beside it too.

    The vector alone tells one of two things: for each of them the best place is under three of all columns. The image
    alone is the same for both of two targets, all through the episode, and no place is under both.
    """
    starts = hybrid_starts()
    pairs = {balls for balls, _ in starts}
    assert len(starts) == 2 * len(pairs)  # either ball may count in every picture
    for balls in pairs:
        assert np.array_equal(starts[balls, 0]["image"], starts[balls, 1]["image"])
        assert not any(abs(place - balls[0]) <= 1 and abs(place - balls[1]) <= 1 for place in range(toy.Hybrid.GRID))
    for which in (0, 1):
        assert len({tuple(starts[balls, which]["vector"]) for balls in pairs}) == 1
        under = [[abs(place - balls[which]) <= 1 for balls in pairs] for place in range(toy.Hybrid.GRID)]
        assert max(np.mean(under, 1)) == 3 / toy.Hybrid.GRID


def test_the_cue_is_seen_once_and_decides():
    env = toy.Memory()
    observation, _ = env.reset(seed=0)
    cue = observation[0]
    seen = [env.step(0)[0] for _ in range(5)]
    assert abs(cue) == 1 and not any(row[0] for row in seen) and [row[2] for row in seen] == [0, 0, 0, 0, 1]
    assert env.step(int(cue > 0))[1:3] == (1.0, True)


def test_the_cue_is_hidden_asked_for_and_shown_again():
    env = toy.Recall()
    rows = [env.reset(seed=0)[0]] + [env.step(0)[0] for _ in range(8)]
    assert [row[2] for row in rows] == [0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert [abs(row[0]) for row in rows] == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert rows[0][1] == 0 and rows[4][1] == rows[0][0] and rows[8][1] == rows[4][0]


def test_recalling_pays_and_ends_after_ten_answers():
    env, rewards = toy.Recall(), []
    observation, _ = env.reset(seed=0)
    cue, ended = observation[0], False
    while not ended:
        cue = observation[0] or cue
        observation, reward, ended, _, info = env.step(int(cue > 0))
        rewards.append(reward)
    assert rewards == 10 * [0.0, 0.0, 0.0, 1.0] and info == {"success": True}


def test_without_memory_half_of_the_answers_are_right():
    """Every row that asks looks the same: whatever is answered there, each cue is as likely as the other."""
    seeds, asked, totals = range(500), set(), []
    for answer in (0, 1):

        def name(env, observation, answer=answer):
            asked.update([tuple(observation)] if observation[2] else [])
            return answer

        totals.append([score(toy.Recall(), name, seed)[0] for seed in seeds])
    assert asked == {(0, 0, 1)}
    assert np.array_equal(totals[0], -np.array(totals[1]))  # what one answer wins the other loses
    assert abs(np.mean(totals[0])) < 0.6  # four deviations of the mean: the cues are even


def test_the_goal_is_reached_by_going_there():
    env = toy.Reach()

    def straight(env, observation):
        return np.clip(10 * (observation[2:] - observation[:2]), -1, 1).astype(np.float32)

    assert all(score(env, straight, seed)[1]["success"] for seed in range(50))
    assert not score(env, lambda env, observation: np.zeros(2, np.float32), 0)[1]["success"]


def test_switches_pay_by_halves():
    env = toy.Multi()
    assert score(env, lambda env, observation: env.wish, 0)[0] == 10
    assert score(env, lambda env, observation: np.array([env.wish[0], (env.wish[1] + 1) % 4]), 0)[0] == 5


def test_the_crash_is_seeded():
    def lived(seed):
        env = toy.Crash(0.2)
        env.reset(seed=seed)
        for step in range(20):
            try:
                env.step(0)
            except RuntimeError:
                return step
        return 20

    assert [lived(seed) for seed in range(10)] == [lived(seed) for seed in range(10)]
    assert len({lived(seed) for seed in range(10)}) > 3
