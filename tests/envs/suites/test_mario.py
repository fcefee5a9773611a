from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from reverie.config.schema import EnvConfig, EnvsConfig, MarioConfig
from reverie.envs.registry import Suite
from reverie.envs.rows import RowStream
from reverie.envs.serial import SerialVector
from reverie.envs.suites.mario import CLOCK, SUITE, Mario
from reverie.envs.vector import Maker

NOOP, WALK, JUMP, RUN, LEFT, DOWN = 0, 1, 2, 3, 6, 10

# Runs of the same action, as action:steps, that bring Mario to the flag of 1-1.
TO_THE_FLAG = """
3:12 4:1 3:8 4:3 3:8 4:4 3:3 4:5 3:2 4:2 3:3 4:9 3:12 4:8 3:11 4:10 3:5 4:14 3:1 4:13 3:4 4:6 0:7 3:5 4:10 3:8 4:14
3:4 4:6 0:2 3:2 4:2 3:5 4:6 3:13 4:8 3:1 4:3 3:3 0:6 4:3 3:7 4:1 3:7 4:9 3:5 4:6 3:1 4:3 0:1 4:15 3:2 4:7
"""


@pytest.fixture(autouse=True)
def _installed(installed: Callable[[Suite], Suite]) -> None:
    installed(SUITE)


def stage(name: str = "1-1", **options: Any) -> Mario:
    mario = MarioConfig(
        **{key: options.pop(key) for key in ("actions", "flag_bonus", "death_penalty", "noops") if key in options}
    )
    env = SUITE.make(name, EnvConfig(mario=mario, **options), True)
    assert isinstance(env, Mario)
    return env


def walkthrough() -> list[int]:
    runs = [run.split(":") for run in TO_THE_FLAG.split()]
    return [int(action) for action, steps in runs for _ in range(int(steps))]


def play(env: Mario, actions: list[int]) -> list[tuple[np.ndarray, float, bool, bool, dict[str, Any]]]:
    """All outcomes up to the end of the episode."""
    env.reset(seed=0)
    outcomes = []
    for action in actions:
        outcomes.append(env.step(action))
        if outcomes[-1][2] or outcomes[-1][3]:
            break
    return outcomes


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_the_game() -> None:
    check_env(stage())


def test_tasks_are_all_stages_and_random() -> None:
    names = SUITE.tasks()
    assert len(names) == 33 and {"1-1", "4-2", "8-4", "random"} <= set(names)


def test_first_observation_and_info() -> None:
    env = stage()
    image, info = env.reset(seed=0)
    assert image.shape == (64, 64, 3) and image.dtype == np.uint8
    assert info == {
        "coins": 0,
        "flag_get": False,
        "life": 2,
        "score": 0,
        "stage": 1,
        "status": "small",
        "time": 400,
        "world": 1,
        "x_pos": 40,
        "y_pos": 79,
    }


@pytest.mark.parametrize("name", ["1-2", "4-1", "7-4", "8-3"])
def test_the_stage_asked_for_is_the_one_played(name: str) -> None:
    env = stage(name)
    info = env.reset(seed=0)[1]
    assert f"{info['world']}-{info['stage']}" == name
    moved = [env.step(WALK)[4]["x_pos"] for _ in range(5)]
    assert moved[-1] > info["x_pos"]


def test_reward_is_distance_minus_ticks() -> None:
    env = stage()
    start = env.reset(seed=0)[1]
    walk, wait = play(env, [WALK] * 20), play(env, [NOOP] * 30)
    for outcomes in (walk, wait):
        info = outcomes[-1][4]
        total = sum(outcome[1] for outcome in outcomes)
        assert total == (info["x_pos"] - start["x_pos"]) + (info["time"] - start["time"])
    assert walk[-1][4]["x_pos"] > 100
    assert wait[-1][4]["time"] < start["time"] and wait[-1][4]["x_pos"] == start["x_pos"]


@pytest.mark.parametrize("penalty", [15.0, 100.0])
def test_death_is_a_real_end_and_costs_the_penalty(penalty: float) -> None:
    env = stage(death_penalty=penalty, repeat=1)
    outcomes = play(env, [RUN] * 200)
    _, reward, terminated, truncated, info = outcomes[-1]
    assert terminated and not truncated and len(outcomes) < 200
    assert reward == -penalty and min(outcome[1] for outcome in outcomes[:-1]) >= -2
    assert info["summary"] == {"success": 0.0, "x_pos": float(info["x_pos"])}
    assert env.reset()[1]["life"] == 2


def wind(env: Mario, left: int) -> None:
    """Leave the game so much of its clock."""
    for place, digit in enumerate(f"{left:0{CLOCK[1]}d}"):
        env.game.ram[CLOCK[0] + place] = int(digit)
    env.clock = left


def test_the_game_s_clock_kills_when_it_has_run_out_and_that_is_a_real_end() -> None:
    env = stage()
    env.reset(seed=0)
    wind(env, 3)
    clocks, total = [], 0.0
    for _ in range(60):
        _, reward, terminated, truncated, info = env.step(NOOP)
        clocks.append(info["time"])
        total += reward
        if terminated or truncated:
            break
    assert terminated and not truncated and info["time"] == 0 and info["x_pos"] == 40
    assert clocks == sorted(clocks, reverse=True) and {1, 2} <= set(clocks)
    assert reward == -15.0 and total == -3.0 - 15.0  # a tick each, then the penalty of a death
    assert info["summary"]["success"] == 0.0


def rows_of(action: int, clock: int, **options: Any) -> list[dict[str, Any]]:
    """The rows of an episode of the same action, begun with so much of the clock, and the one behind it."""
    vector = SerialVector([Maker("mario_1-1", EnvConfig(**options))], 0, EnvsConfig())
    stream = RowStream(vector)
    rows = [{key: value[0].copy() for key, value in stream.begin().items()}]
    env = vector.slots[0].env
    assert env is not None and isinstance(env.unwrapped, Mario)
    wind(env.unwrapped, clock)
    while len(rows) < 300 and not (len(rows) > 1 and rows[-2]["is_last"]):
        rows.append({key: value[0].copy() for key, value in stream.step(np.array([action])).items()})
    stream.close()
    return rows


@pytest.mark.parametrize(
    ("action", "clock", "limit", "terminal"),
    [(RUN, 400, 0, True), (NOOP, 3, 0, True), (NOOP, 400, 12, False)],
    ids=["an enemy", "the clock", "the time limit"],
)
def test_deaths_are_terminal_rows_and_the_time_limit_is_none(
    action: int, clock: int, limit: int, terminal: bool
) -> None:
    rows = rows_of(action, clock, time_limit=limit)
    assert 5 < len(rows) < 300
    inside, last, behind = rows[:-2], rows[-2], rows[-1]
    assert not any(row["is_last"] or row["is_terminal"] for row in inside)
    assert last["is_last"] and last["is_terminal"] == terminal and not last["is_first"]
    assert (last["reward"] < -10) == terminal
    assert behind["is_first"] and not behind["is_last"] and not behind["is_terminal"]


def test_flag_is_a_real_end_and_pays_the_bonus() -> None:
    outcomes = play(stage(flag_bonus=500.0), walkthrough())
    _, reward, terminated, truncated, info = outcomes[-1]
    assert terminated and not truncated and info["flag_get"]
    assert 480 < reward < 520
    assert info["summary"]["success"] == 1.0 and info["summary"]["x_pos"] > 3100
    assert sum(outcome[1] for outcome in outcomes[:-1]) > 2900 and info["status"] == "small"
    assert not any(outcome[4]["flag_get"] for outcome in outcomes[:-1])


def test_pipe_leads_below_without_a_reward_for_the_jump() -> None:
    above = [*walkthrough()[:75], *[LEFT] * 6, *[NOOP] * 3]  # ends on top of the fourth pipe
    outcomes = play(stage(actions="complex"), above + [DOWN] * 8)
    rewards, places = [outcome[1] for outcome in outcomes[len(above) :]], [outcome[4]["x_pos"] for outcome in outcomes]
    assert places[len(above) - 1] > 900 and places[-1] < 50
    assert all(-3 <= reward <= 0 for reward in rewards)
    assert not outcomes[-1][2]


def test_only_the_option_limits_time() -> None:
    outcomes = play(stage(time_limit=7), [NOOP] * 20)
    assert [outcome[2:4] for outcome in outcomes] == [(False, False)] * 6 + [(False, True)]
    assert outcomes[-1][4]["summary"]["success"] == 0.0
    assert "summary" not in outcomes[-2][4] and outcomes[-2][4]["time"] > 0
    assert len(play(stage(time_limit=0), [NOOP] * 20)) == 20


def test_actions() -> None:
    assert [stage(actions=name).action_space.n for name in ("right", "simple", "complex")] == [5, 7, 12]
    env = stage(actions="complex")
    right, back = play(env, [WALK] * 10)[-1], play(env, [WALK] * 10 + [LEFT] * 15)[-1]
    assert back[4]["x_pos"] < right[4]["x_pos"]
    assert max(outcome[4]["y_pos"] for outcome in play(env, [JUMP] * 8)) > 110
    assert all(outcome[4]["y_pos"] == 79 for outcome in play(env, [DOWN] * 8))


def test_repeat_sums_the_frames() -> None:
    slow, quick = stage(repeat=1), stage()
    frames, steps = play(slow, [RUN] * 40), play(quick, [RUN] * 10)
    assert [sum(row[1] for row in frames[at : at + 4]) for at in range(0, 40, 4)] == [row[1] for row in steps]
    np.testing.assert_array_equal(frames[-1][0], steps[-1][0])


def test_images_are_copies_in_any_size() -> None:
    env = stage(size=84)
    image, _ = env.reset(seed=0)
    screen = env.render()
    assert image.shape == (84, 84, 3) and screen.shape == (240, 256, 3)
    assert image.flags.c_contiguous and screen.flags.c_contiguous
    kept = image.copy(), screen.copy()
    for _ in range(10):
        later = env.step(RUN)[0]
    np.testing.assert_array_equal(image, kept[0])
    np.testing.assert_array_equal(screen, kept[1])
    assert not np.array_equal(later, image)
    assert screen[8, 8].tolist() == [104, 136, 252]  # the sky is blue, so the channels are in order


def test_episodes_repeat_exactly() -> None:
    env = stage()
    first, again, other = play(env, [RUN] * 40), play(env, [RUN] * 40), play(stage(), [RUN] * 40)
    for outcomes in (again, other):
        assert [row[1:] for row in outcomes] == [row[1:] for row in first]
        for mine, theirs in zip(outcomes, first, strict=True):
            np.testing.assert_array_equal(mine[0], theirs[0])


def test_games_in_threads_do_not_disturb_each_other() -> None:
    plans = [[RUN] * 25, [JUMP, LEFT] * 12, [WALK] * 25]
    alone = [play(stage(), plan)[-1] for plan in plans]
    together: dict[int, Any] = {}

    def run(index: int) -> None:
        together[index] = play(stage(), plans[index])[-1]

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(plans))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, expected in enumerate(alone):
        assert together[index][1:] == expected[1:]
        np.testing.assert_array_equal(together[index][0], expected[0])


def test_random_stages_follow_the_seed() -> None:
    env = stage("random")

    def stages(seed: int) -> list[tuple[int, int]]:
        infos = [env.reset(seed=seed)[1], env.reset()[1], env.reset()[1]]
        return [(info["world"], info["stage"]) for info in infos]

    assert stages(3) == stages(3)
    assert len(set(stages(3))) > 1
    env.close()


def test_a_closed_game_cannot_be_played() -> None:
    env = stage()
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(AttributeError):
        env.render()


def test_idle_frames_are_drawn_from_the_seed() -> None:
    env = stage(noops=60)
    clocks = [env.reset(seed=seed)[1]["time"] for seed in range(12)]
    assert len(set(clocks)) > 1 and max(clocks) <= 400 and min(clocks) >= 397
    np.testing.assert_array_equal(env.reset(seed=3)[0], env.reset(seed=3)[0])
    assert env.step(NOOP)[1] <= 0.0  # nothing is paid for the time before
    plain = stage()
    assert {plain.reset(seed=seed)[1]["time"] for seed in range(12)} == {400}
