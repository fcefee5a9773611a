"""A copy that acts while the agent learns: one update behind, and otherwise a collector like any other."""

import copy
from dataclasses import replace

import pytest
import torch

import reverie
from reverie.actors import make_agent, make_stream
from reverie.collect.understudy import MANY, Understudy

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])


def understudy(device="cpu", rows=3):
    config = reverie.configure("dreamer_v3", "1m", "debug", task="toy_count", device=device)
    stream, place = make_stream(config), torch.device(device)
    agent = make_agent(config, *stream.spaces, place)
    double = make_agent(replace(config, seed=5), *stream.spaces, place)
    double.only_act()
    return Understudy(stream, agent, double, place, rows), agent


def weight_of(agent):
    return next(agent.behavior.actor.parameters())


@devices
def test_acts_with_the_weights_before_the_last_update(device):
    collector, agent = understudy(device)
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


@devices
def test_a_chunk_stays_as_it_is_while_the_next_is_collected(device):
    collector, _ = understudy(device)
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
    with torch.no_grad():
        weight_of(agent).add_(1)  # an update, which the copy has not seen yet
    saved = copy.deepcopy({"collector": collector.state(), "agent": agent.save()})
    following = {name: value.clone() for name, value in collector.collect(1).rows.items()}
    again, other = understudy()
    other.restore(saved["agent"])
    assert not again.restore(saved["collector"])
    found = again.collect(1).rows
    assert other.acted == agent.acted
    for name, value in following.items():
        assert torch.equal(found[name][:-1], value[:-1]), name


def test_much_that_was_learned_at_once_is_waited_for():
    collector, agent = understudy()
    collector.collect(1)
    collector.publish(0)
    with torch.no_grad():
        weight_of(agent).fill_(7)
    collector.publish(1)
    assert not (weight_of(collector.agent) == 7).any() and collector.prompted
    collector.publish(1 + MANY)
    collector.collect(1)
    assert (weight_of(collector.agent) == 7).all()


def test_a_copy_keeps_nothing_that_only_learning_needs():
    collector, _ = understudy()
    assert all(parameter.grad is None for parameter in collector.agent.parameters())
    assert not collector.agent.steppers
