"""Picking a ball: the image tells one half of what pays, the vector the other."""

from collections import Counter

import numpy as np

from reverie.envs.pick import Pick


def side(observation):
    """Where the ball lies, by the image."""
    return int(observation["image"][:, 8:].any())


def hand(observation):
    """What to pick it with, by the vector."""
    return int(observation["vector"][1] > 0)


def score(policy, episodes=1):
    """The mean return of a policy, and whether the last episode was a success."""
    total, env = 0.0, Pick()
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        for _ in range(Pick.ROUNDS):
            observation, reward, ended, _, info = env.step(np.array(policy(observation)))
            total += reward
        assert ended
    return total / episodes, info["success"]


def test_both_together_tell_everything():
    assert score(lambda seen: (side(seen), hand(seen))) == (10.0, True)
    assert score(lambda seen: (1 - side(seen), 1 - hand(seen))) == (-10.0, False)


def test_one_alone_is_worth_a_half():
    for guess in (0, 1):
        for alone in (lambda seen, guess=guess: (side(seen), guess), lambda seen, guess=guess: (guess, hand(seen))):
            mean, _ = score(alone, 200)
            assert abs(mean - 5) < 0.5  # four deviations of the mean


def test_neither_says_anything_of_the_other():
    env, seen = Pick(), Counter()
    env.reset(seed=0)
    shown = {}
    for wanted in ((0, 0), (0, 1), (1, 0), (1, 1)):
        env.wanted = np.array(wanted)
        shown[wanted] = env.observe()
    for bit in (0, 1):
        assert np.array_equal(shown[bit, 0]["image"], shown[bit, 1]["image"])
        assert np.array_equal(shown[0, bit]["vector"], shown[1, bit]["vector"])
    for seed in range(400):
        env.reset(seed=seed)
        for _ in range(Pick.ROUNDS):
            seen[tuple(env.wanted.tolist())] += 1
            env.step(np.zeros(2, np.int64))
    assert len(seen) == 4 and all(abs(count - 1000) < 110 for count in seen.values())  # four deviations
