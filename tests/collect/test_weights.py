"""Weights in shared memory: what is being used is never written over."""

import os

import pytest
import torch

from reverie.collect.shared import bytes_of, tensors_over
from reverie.collect.weights import COPIES, Seldom, Weights, WeightsPlan
from reverie.envs.memory import SharedBlock


@pytest.fixture
def weights():
    plan = WeightsPlan.of([torch.zeros(3, 5), torch.zeros((), dtype=torch.int64)], readers=2)
    block = SharedBlock(plan.size())
    made = Weights(plan, block.file, block.map)
    made.clear()
    yield made
    block.close()


def tensors(number):
    return [torch.full((3, 5), float(number)), torch.tensor(number)]


def numbers(copy):
    assert copy[0].unique().numel() == 1
    return float(copy[0][0, 0]), int(copy[1])


def test_a_reader_gets_the_newest_version(weights):
    for number in range(1, 8):
        assert weights.publish(tensors(number), 10 * number)
        taken, version = weights.take(0)
        assert (numbers(taken), version) == ((float(number), number), 10 * number)


def test_what_a_reader_uses_stays_as_it_is(weights):
    weights.publish(tensors(1), 1)
    taken, _ = weights.take(0)
    for number in range(2, 20):
        assert weights.publish(tensors(number), number)
        assert numbers(taken) == (1.0, 1)
        assert numbers(weights.take(1)[0]) == (float(number), number)


def test_nothing_is_published_while_no_copy_is_free_for_it(weights):
    weights.publish(tensors(1), 1)
    first, _ = weights.take(0)
    weights.publish(tensors(2), 2)
    second, _ = weights.take(1)
    weights.publish(tensors(3), 3)
    assert COPIES == 3 and not weights.publish(tensors(4), 4)
    assert [numbers(first)[1], numbers(second)[1]] == [1, 2]
    weights.release(0)
    assert weights.publish(tensors(4), 4) and weights.take(0)[1] == 4


def test_a_reader_that_dies_with_the_lock_does_not_keep_it(weights):
    weights.publish(tensors(1), 1)
    child = os.fork()
    if not child:
        with weights._locked():
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert weights.publish(tensors(2), 2)


def test_something_seldom_takes_a_small_share_of_the_time():
    now = [0.0]
    seldom = Seldom(0.1, lambda: now[0])
    assert seldom.due
    with seldom.timed():
        now[0] = 2.0
    now[0] = 19.9
    assert not seldom.due
    now[0] = 20.0
    assert seldom.due


def test_tensors_lie_in_bytes_elsewhere_as_they_do_in_a_block():
    layout = {"a": ((3, 5), torch.float32), "b": ((3,), torch.bool), "none": ((0, 2), torch.float32),
              "c": ((7,), torch.bfloat16), "d": ((), torch.int64)}  # fmt: skip
    block = SharedBlock(bytes_of(layout))
    staged = torch.zeros(bytes_of(layout), dtype=torch.uint8)
    for number, part in enumerate(tensors_over(staged, layout).values()):
        part.fill_(number)
    there = tensors_over(block.map, layout)
    torch.frombuffer(block.map, dtype=torch.uint8)[: len(staged)].copy_(staged)
    assert {name: (tuple(part.shape), part.dtype) for name, part in there.items()} == layout
    assert all((part == number).all() for number, part in enumerate(there.values()))
    del there
    block.close()
