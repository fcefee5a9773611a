"""Steering to the middle: what standing still, the best policies and halves of them are paid."""

import numpy as np
import pytest

from reverie.envs.steer import MixedSteer, Steer


def score(env, policy, episodes=400):
    """The mean return of a policy."""
    total = 0.0
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        for _ in range(Steer.LENGTH):
            observation, reward, ended, _, _ = env.step(policy(observation))
            total += reward
        assert ended
    return total / episodes


def straight(point):
    """What brings a point to the middle, or as near as a step does."""
    return np.clip(-point / Steer.STEP, -1, 1)


def test_going_straight_pays_and_standing_still_does_not():
    assert score(Steer(), straight) == pytest.approx(9.125, abs=0.1)
    assert score(Steer(), lambda point: np.zeros(2)) == pytest.approx(0, abs=0.5)
    assert score(Steer(), lambda point: 5 * straight(point)) < 8.5  # what goes beyond the bounds is cut, and overshoots


@pytest.mark.parametrize(("side", "lift", "paid"), [(True, True, 8.6), (True, False, 4.2), (False, True, 4.6)])
def test_choice_and_number_are_worth_a_half_each(side, lift, paid):
    def policy(point):
        wish = straight(point)
        return {"side": int(np.rint(wish[0]) + 1) if side else 1, "lift": wish[1:] if lift else np.zeros(1)}

    assert score(MixedSteer(), policy) == pytest.approx(paid, abs=0.3)
