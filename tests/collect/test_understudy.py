"""A copy that acts while the agent learns: one update behind, and otherwise a collector like any other."""

from dataclasses import replace

import torch

import reverie
from reverie.actors import make_agent, make_stream
from reverie.collect.understudy import Understudy

CPU = torch.device("cpu")


def understudy(rows=3):
    config = reverie.configure("dreamer_v3", "1m", "debug", task="toy_count", device="cpu")
    stream = make_stream(config)
    agent = make_agent(config, *stream.spaces, CPU)
    copy = make_agent(replace(config, seed=5), *stream.spaces, CPU)
    copy.only_act()
    return Understudy(stream, agent, copy, CPU, rows), agent


def weight_of(agent):
    return next(agent.behavior.actor.parameters())


def test_acts_with_the_weights_before_the_last_update():
    collector, agent = understudy()
    seen = []
    act = collector.agent.act

    def watched(*given):
        seen.append(float(weight_of(collector.agent).flatten()[0]))
        return act(*given)

    collector.agent.act = watched
    with torch.no_grad():
        for update in range(3):
            weight_of(agent).fill_(update)
            assert len(collector.collect(1).rows["reward"]) == 4
    assert seen == [0] * 3 + [0] * 3 + [1] * 3
    assert agent.acted == collector.agent.acted == 9 * collector.stream.count


def test_a_chunk_stays_as_it_is_while_the_next_is_collected():
    collector, _ = understudy()
    before = collector.collect(1).rows
    kept = {name: value[:-1].clone() for name, value in before.items()}  # the last has not been acted upon
    after = collector.collect(1).rows
    for name, value in kept.items():
        assert torch.equal(before[name][:-1], value)
    for name in ("reward", "is_first"):
        assert torch.equal(after[name][0], before[name][-1])


def test_goes_on_from_a_saved_state():
    collector, agent = understudy()
    collector.collect(1)
    saved = {"collector": collector.state(), "agent": agent.save()}
    following = {name: value.clone() for name, value in collector.collect(1).rows.items()}
    again, other = understudy()
    other.restore(saved["agent"])
    assert not again.restore(saved["collector"])
    found = again.collect(1).rows
    assert other.acted == agent.acted
    for name, value in following.items():
        assert torch.equal(found[name][:-1], value[:-1]), name
