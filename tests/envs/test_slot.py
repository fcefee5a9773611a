import logging
import re
import sys
from functools import partial

import numpy as np
import pytest

from reverie.config.errors import UserError
from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs import checks, toy
from reverie.envs.slot import Slot, episode_seed
from reverie.envs.wrappers import standard


def form(env):
    return standard(env, EnvConfig(), 1, frozenset())


def make_slot(factory, index=0, **settings):
    return Slot(factory, index, 0, EnvsConfig(**settings))


class BreaksAt(toy.Count):
    """Raises at a given step of its first episodes, of which the class keeps count."""

    def __init__(self, step, episodes):
        super().__init__()
        self.breaking, self.episodes = step, episodes

    def step(self, action):
        if self.steps == self.breaking and self.episodes:
            self.episodes.pop()
            raise ValueError("a wheel came off")
        return super().step(action)


class Tells(toy.Count):
    """Tells the same of itself at every step."""

    def __init__(self, info):
        super().__init__()
        self.info = info

    def step(self, action):
        return (*super().step(action)[:4], self.info)


class SpoiledAt(toy.Count):
    """Shows NaN, or pays it, at a given step of its first episodes, of which a list keeps count."""

    def __init__(self, step, episodes, what="observation"):
        super().__init__()
        self.spoiling, self.episodes, self.what = step, episodes, what

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return self.spoiled(observation), info

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.what == "reward" and self.steps == self.spoiling and self.episodes:
            self.episodes.pop()
            reward = np.inf
        return self.spoiled(observation), reward, *rest

    def spoiled(self, observation):
        if self.what == "observation" and self.steps == self.spoiling and self.episodes:
            self.episodes.pop()
            return observation * np.float32(np.nan)
        return observation


def test_the_step_after_an_end_shows_the_next_episode():
    slot = make_slot(lambda: form(toy.Count()))
    first = slot.reset()
    steps = [slot.step(1) for _ in range(12)]
    assert first.observation["vector"][0] == 0
    assert [step.observation["vector"][0] for step in steps] == [*range(1, 11), 0, 1]
    assert [step.reward for step in steps] == [*range(1, 11), 0, 1]
    assert [step.terminated for step in steps] == [False] * 9 + [True, False, False]
    labels = {step.observation["vector"][1] for step in steps}
    assert len(labels) == 2


def test_seeds_differ_by_base_slot_and_episode_and_come_back():
    seeds = [episode_seed(*numbers) for numbers in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    assert len(set(seeds)) == 4 and all(0 <= seed < 2**31 for seed in seeds)
    assert episode_seed(0, 0, 1) == seeds[3]


def test_a_seed_starts_the_episodes_again():
    slot = make_slot(lambda: form(toy.Count()))
    labels = [slot.reset().observation["vector"][1] for _ in range(3)]
    assert len(set(labels)) == 3
    assert slot.reset(seed=0).observation["vector"][1] == labels[0]
    assert slot.reset(seed=1).observation["vector"][1] not in labels


def test_a_break_ends_the_episode_with_the_last_good_observation(caplog):
    left = [1]
    slot = make_slot(lambda: form(BreaksAt(3, left)))
    slot.reset()
    with caplog.at_level(logging.WARNING, "reverie"):
        steps = [slot.step(0) for _ in range(6)]
    end = steps[3]
    assert end.observation["vector"][0] == 3
    assert (end.reward, end.terminated, end.truncated, end.broken) == (0, False, True, True)
    assert [step.observation["vector"][0] for step in steps[4:]] == [0, 1]
    (record,) = caplog.records
    assert "environment 0 (BreaksAt) broke and is restarted: ValueError: a wheel came off" in record.getMessage()
    assert "test_slot.py" in record.getMessage()


def test_an_environment_that_would_end_the_program_is_a_break(caplog):
    class Leaves(BreaksAt):
        def step(self, action):
            try:
                return super().step(action)
            except ValueError:
                sys.exit(3)

        def close(self):
            sys.exit(4)

    slot = make_slot(lambda: form(Leaves(3, [1])))
    slot.reset()
    assert [slot.step(0).broken for _ in range(4)] == [False, False, False, True]
    assert "broke and is restarted: SystemExit: 3" in caplog.text


@pytest.mark.parametrize("info", [{"success": "yes"}, {"is_success": []}, {"summary": {"coins": "three"}}])
def test_figures_that_are_no_numbers_stop_the_run_and_are_named(info):
    slot = make_slot(lambda: form(Tells(info)))
    slot.reset()
    key = next(iter(info))
    place = f"info['{key}']" + ("['coins']" if key == "summary" else "")
    with pytest.raises(UserError, match=re.escape(place) + " is .* at the end of an episode: give a number"):
        for _ in range(10):
            slot.step(0)


def test_breaks_in_a_row_stop_the_run_with_the_error():
    slot = make_slot(lambda: form(BreaksAt(3, [1] * 100)), index=2, max_restarts=3)
    slot.reset()
    with pytest.raises(UserError, match=r"environment 2 \(BreaksAt\) broke 3 times in a row .*ValueError: a wheel"):
        for _ in range(30):
            slot.step(0)


@pytest.mark.parametrize(
    ("what", "fault"),
    [("observation", "observation 'vector' has NaN at index 0"), ("reward", "the reward is infinity")],
)
def test_numbers_that_are_not_finite_are_a_break(what, fault, caplog):
    slot = make_slot(lambda: form(SpoiledAt(4, [1], what)), checks=False)
    slot.reset()
    with caplog.at_level(logging.WARNING, "reverie"):
        steps = [slot.step(0) for _ in range(6)]
    assert [step.observation["vector"][0] for step in steps] == [1, 2, 3, 3, 0, 1]
    assert [step.reward for step in steps] == [1, 2, 3, 0, 0, 1]
    assert [step.broken for step in steps] == [False, False, False, True, False, False]
    assert steps[3].truncated and not steps[3].terminated
    (record,) = caplog.records
    assert record.getMessage() == f"environment 0 (SpoiledAt) broke and is restarted: {fault}"


def test_a_spoiled_first_observation_is_left_out(caplog):
    left = [1, 1]
    slot = make_slot(lambda: form(SpoiledAt(0, left)), checks=False)
    assert slot.reset().observation["vector"][0] == 0
    assert slot.breaks == 2 and "has NaN" in caplog.text


def slot_past_its_checks(left):
    """A slot whose first steps are over, with an environment that is spoiled as often as `left` will have entries."""
    slot = make_slot(lambda: form(SpoiledAt(4, left)))
    slot.reset()
    for _ in range(checks.STEPS + 10):
        slot.step(0)
    return slot


def test_breaks_after_the_first_steps_end_no_run_by_the_checks_of_first_steps():
    left = []
    slot = slot_past_its_checks(left)
    left += [1, 1]
    assert sum(slot.step(0).broken for _ in range(30)) == 2


def test_an_environment_that_raised_late_is_not_checked_like_a_new_one():
    left = []
    slot = slot_past_its_checks(left)
    slot.fail(RuntimeError("a simulator went away"))
    slot.lost = True
    left.append(1)
    assert sum(slot.step(0).broken for _ in range(30)) == 2


def test_an_environment_that_stays_spoiled_stops_the_run():
    slot = make_slot(lambda: form(SpoiledAt(4, [1] * 100)), checks=False, max_restarts=3)
    slot.reset()
    with pytest.raises(UserError, match=r"broke 3 times in a row .*: observation 'vector' has NaN at index 0: mend"):
        for _ in range(30):
            slot.step(0)


def test_a_finished_episode_forgives_breaks():
    breaks = {"left": 6}

    class BreaksEveryOther(toy.Count):
        def step(self, action):
            if self.steps == 2 and breaks["left"] % 2 == 0:
                breaks["left"] -= 1
                raise ValueError
            outcome = super().step(action)
            breaks["left"] -= outcome[2]
            return outcome

    slot = make_slot(lambda: form(BreaksEveryOther()), max_restarts=2)
    slot.reset()
    while breaks["left"] > 0:
        slot.step(0)


def test_a_failing_reset_or_construction_is_tried_again():
    faults = ["make", "reset"]

    class Fragile(toy.Count):
        def reset(self, *, seed=None, options=None):
            if faults == ["reset"]:
                faults.clear()
                raise OSError("no answer")
            return super().reset(seed=seed)

    def make():
        if faults and faults[0] == "make":
            faults.pop(0)
            raise OSError("no port")
        return form(Fragile())

    slot = make_slot(make)
    assert slot.reset().observation["vector"][0] == 0
    assert not faults and slot.breaks == 2


def test_a_user_error_is_not_a_break():
    def make():
        raise UserError("not installed")

    with pytest.raises(UserError, match="not installed"):
        make_slot(make)


def test_a_broken_environment_that_does_not_close_either():
    class Stubborn(BreaksAt):
        def close(self):
            raise RuntimeError("stuck")

    slot = make_slot(lambda: form(Stubborn(1, [1])))
    slot.reset()
    slot.step(0)
    assert slot.step(0).broken


@pytest.mark.parametrize("kind", [toy.Reach, toy.Catch, toy.Multi])
@pytest.mark.parametrize("steps", [0, 7, 61])
def test_state_and_restore_bring_an_episode_back(kind, steps):
    factory = partial(lambda make: form(make()), kind)
    slot = make_slot(factory, index=4)
    shown = slot.reset()
    slot.action_space.seed(1)
    for _ in range(steps):
        shown = slot.step(slot.action_space.sample())
    other = make_slot(factory, index=4)
    restored = other.restore(slot.state())
    assert all(np.array_equal(restored.observation[key], value) for key, value in shown.observation.items())
    for _ in range(40):
        action = slot.action_space.sample()
        left, right = slot.step(action), other.step(action)
        assert left[1:] == right[1:]
        assert all(np.array_equal(right.observation[key], value) for key, value in left.observation.items())


def test_state_at_an_end_and_after_a_break():
    slot = make_slot(lambda: form(toy.Count()))
    slot.reset()
    for _ in range(10):
        slot.step(0)
    other = make_slot(lambda: form(toy.Count()))
    assert other.restore(slot.state()).observation["vector"][0] == 10
    assert other.step(0).observation["vector"].tolist() == slot.step(0).observation["vector"].tolist()
    broken = make_slot(lambda: form(BreaksAt(3, [1])))
    broken.reset()
    while not broken.step(0).broken:
        pass
    other = make_slot(lambda: form(BreaksAt(3, [])))
    assert other.restore(broken.state()).observation["vector"][0] == 3
    spoiled = make_slot(lambda: form(SpoiledAt(4, [1])), checks=False)
    spoiled.reset()
    assert [spoiled.step(0).broken for _ in range(4)] == [False, False, False, True]
    assert make_slot(lambda: form(toy.Count())).restore(spoiled.state()).observation["vector"][0] == 3
    assert other.step(0).observation["vector"][0] == 0


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"summary": {"coins": 3}, "is_success": np.True_}, {"coins": 3.0, "success": 1.0}),
        ({"success": False, "is_success": True}, {"success": 0.0}),
        ({"summary": {"success": 0.5}, "success": True}, {"success": 0.5}),
        ({"success": None, "summary": {"coins": None}}, {}),
    ],
)
def test_summaries_come_at_the_end(told, expected):
    slot = make_slot(lambda: form(Tells(told)))
    slot.reset()
    steps = [slot.step(0) for _ in range(10)]
    assert steps[8].summary is None
    assert steps[9].summary == expected
