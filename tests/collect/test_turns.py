"""Groups of environments that take turns give the rows that they would give by themselves, side by side."""

import pytest
import torch

import reverie
from reverie.build import make_agent, make_parts, make_stream
from reverie.collect.collector import Collector
from reverie.collect.turns import Turns
from reverie.config.errors import UserError

CPU = torch.device("cpu")


def config_of(**options):
    return reverie.configure("cartpole_ppo", "debug", device="cpu", envs__count=5, envs__groups=2, **options)


def streams(config):
    return [make_stream(config, count=count) for count in (3, 2)]


class Constant:
    """Always the same action, in rows that say who has acted."""

    acted = 0

    def __init__(self):
        self.calls = []

    def initial_carry(self, batch):
        return torch.zeros(batch)

    def act(self, rows, carry, mode):
        self.calls.append(len(rows["reward"]))
        return {"action": torch.ones(len(carry), dtype=torch.int64), "count": carry}, carry + 1


def test_groups_side_by_side_are_what_they_are_alone():
    config, agent = config_of(), Constant()
    together = Turns([Collector(stream, agent, CPU) for stream in streams(config)])
    alone = [Collector(stream, Constant(), CPU) for stream in streams(config)]
    for _ in range(3):  # episodes end on the way: a constant push tips the pole within ten steps
        found, parts = together.collect(8), [each.collect(8) for each in alone]
        for key, rows in found.rows.items():
            assert torch.equal(rows[:-1], torch.cat([part.rows[key][:-1] for part in parts], 1)), key
            if key not in ("action", "count"):
                assert torch.equal(rows[-1], torch.cat([part.rows[key][-1] for part in parts], 0)), key
        assert found.steps == sum(part.steps for part in parts)
        numbered = sorted((each.env, each.score) for each in found.episodes)
        apart = [(each.env + first, each.score) for part, first in zip(parts, (0, 3)) for each in part.episodes]
        assert numbered == sorted(apart)
    assert agent.calls == [3, 2] * 24
    for each in (together, *alone):
        each.close()


def test_the_games_of_one_group_go_on_while_another_acts():
    config, seen = config_of(), []

    class Told(Constant):
        def act(self, rows, carry, mode):
            seen.append([group.stream.sent is not None for group in together.groups])
            return super().act(rows, carry, mode)

    together = Turns([Collector(stream, Told(), CPU) for stream in streams(config)])
    together.collect(3)
    assert seen == [[False, False], [True, False], *[[False, True], [True, False]] * 2]
    together.close()


def test_a_run_goes_on_where_its_groups_were():
    config = config_of()
    first, second = make_parts(config), make_parts(config)
    assert isinstance(first.collector, Turns)
    first.collector.collect(4)
    assert not second.collector.restore(first.collector.state())
    second.agent.restore(first.agent.save())
    rows, again = first.collector.collect(4).rows, second.collector.collect(4).rows
    assert all(torch.equal(value[:-1], again[key][:-1]) for key, value in rows.items())
    first.close()
    second.close()


def test_a_group_that_stands_at_first_rows_goes_on_like_the_others():
    config = reverie.configure("cartpole_ppo", "debug", device="cpu", envs__count=2, envs__groups=2)
    first, second = make_parts(config), make_parts(config)
    while True:
        ends = first.collector.collect(1).rows["is_first"][-1]
        if ends.any() and not ends.all():
            break
    assert not second.collector.restore(first.collector.state())
    first.close()
    second.close()


def test_states_of_other_groups_begin_new_episodes():
    config = config_of()
    together = Turns([Collector(stream, make_agent(config, *stream.spaces, CPU), CPU) for stream in streams(config)])
    assert together.restore({}) and together.restore({"groups": [{}]})
    together.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"envs__groups": 6}, "--envs.groups 6 have --envs.count 5"),
        ({"envs__groups": 0}, "--envs.groups 0"),
        ({"collect__mode": "process"}, "--envs.groups 2 is for --collect.mode inline"),
    ],
)
def test_groups_that_cannot_be_are_refused(options, words):
    config = reverie.configure("cartpole_ppo", "debug", device="cpu", **{"envs__count": 5, "envs__groups": 2} | options)
    with pytest.raises(UserError, match=words):
        make_parts(config)
