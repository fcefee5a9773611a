import numpy as np
import pytest

from reverie.envs.corridor import Corridor

DOORS = len(Corridor.HANDLES)


def played(choose, seed=0):
    """Rewards and doors of an episode, and how it ended."""
    env, rewards, doors = Corridor(), [], []
    door, _ = env.reset(seed=seed)
    ended = False
    while not ended:
        door, reward, terminated, truncated, info = env.step(choose(door))
        rewards.append(reward)
        doors.append(door)
        ended = terminated or truncated
    return rewards, doors, (terminated, truncated, info["success"])


def test_the_right_handles_lead_to_the_reward():
    rewards, doors, end = played(lambda door: (*Corridor.HANDLES, 0)[door])
    assert doors[:DOORS] == list(range(1, DOORS + 1)) and set(doors[DOORS:]) == {DOORS}
    assert rewards == [0.0] * (DOORS - 1) + [1.0] * 26  # the room is not left again
    assert end == (False, True, True)


def test_a_wrong_handle_leads_back_and_the_time_runs_out():
    def wrong_at_three(door):
        return Corridor.HANDLES[door] if door != 3 else (Corridor.HANDLES[3] + 1) % 3

    rewards, doors, end = played(wrong_at_three)
    assert doors[:6] == [1, 2, 3, 2, 3, 2] and len(doors) == Corridor.LIMIT
    assert not any(rewards) and end == (False, True, False)
    assert played(lambda door: 0)[1][:2] == [0, 0]  # there is no door before the first


@pytest.mark.parametrize("action", range(3))
def test_no_action_always_leads_on(action):
    assert max(played(lambda door: action)[1]) <= 2


def test_random_policies_hardly_ever_arrive():
    """The chance of an episode, exactly: probabilities of doors, step by step."""
    chance = np.zeros(DOORS + 1)
    chance[0] = 1.0
    for _ in range(Corridor.LIMIT):
        after = np.zeros_like(chance)
        after[-1] = chance[-1]
        after[1:] += chance[:-1] / 3
        after[0] += 2 / 3 * chance[0]
        after[:-2] += 2 / 3 * chance[1:-1]
        chance = after
    assert chance.sum() == pytest.approx(1)
    assert 1 / chance[-1] == pytest.approx(20_105, rel=0.01)
