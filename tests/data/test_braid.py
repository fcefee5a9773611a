"""Episodes laid into streams equal the episodes put together by hand."""

import numpy as np
import pytest
import torch

from reverie.config.errors import UserError
from reverie.data.braid import Braid
from reverie.data.episode_file import note
from reverie.data.replay import Replay

LAYOUT = {
    "vector": ((2,), torch.float32),
    "reward": ((), torch.float32),
    "is_first": ((), torch.bool),
    "is_last": ((), torch.bool),
    "is_terminal": ((), torch.bool),
    "action": ((), torch.int64),
    "deter": ((3,), torch.bfloat16),
    "stoch": ((2,), torch.uint8),
}


def episode(steps, number=0):
    rows = np.arange(steps + 1)
    return {
        "vector": np.stack([rows, np.full(steps + 1, number)], 1).astype(np.float32),
        "reward": np.where(rows == 0, 0, rows + 100 * number).astype(np.float32),
        "is_first": rows == 0,
        "is_last": rows == steps,
        "is_terminal": rows == steps,
        "action": rows + 1000 * number,
        "logp": rows.astype(np.float32),
    }


def laid(*streams):
    """The actions of streams of episodes given as (steps, number)."""
    return [np.concatenate([episode(*each)["action"] for each in stream]) for stream in streams]


def blocks(braid, last=False):
    found = []
    while (block := braid.block()) is not None:
        found.append(block)
    if last and (block := braid.last_block()) is not None:
        found.append(block)
    return {name: torch.cat([block[name] for block in found]) for name in found[0]}


def test_episodes_join_the_shortest_stream_and_the_rest_waits():
    braid = Braid(LAYOUT, 2)
    assert braid.block() is None
    braid.add(episode(9, 0))
    assert braid.block() is None
    braid.add(episode(3, 1))
    braid.add(episode(2, 2))
    first = braid.block()
    left, right = laid([(9, 0)], [(3, 1), (2, 2)])
    assert first["action"].T.tolist() == [left[:7].tolist(), right.tolist()]
    assert braid.lengths == [3, 0] and braid.block() is None
    braid.add(episode(4, 3))
    second = braid.block()
    assert second["action"].T.tolist() == [left[7:].tolist(), laid([(4, 3)])[0][:3].tolist()]
    assert second["is_last"][:, 0].tolist() == [False, False, True] and not second["is_first"][:, 0].any()


@pytest.mark.parametrize("streams", [1, 3, 8])
def test_blocks_one_behind_the_other_are_the_episodes_whole(streams):
    random = np.random.default_rng(0)
    braid, by_hand, found = Braid(LAYOUT, streams), [[] for _ in range(streams)], []
    for number in range(60):
        rows = [sum(steps + 1 for steps, _ in each) for each in by_hand]
        by_hand[rows.index(min(rows))].append((int(random.integers(1, 30)), number))
        braid.add(episode(*next(each[-1] for each in by_hand if each and each[-1][1] == number)))
        if number % 7 == 0 and (block := braid.block()) is not None:
            found.append(block)
    found.append(braid.block())
    for name in ("action", "vector", "reward", "is_first", "is_last", "is_terminal"):
        joined = torch.cat([block[name] for block in found if block is not None])
        for stream, each in enumerate(by_hand):
            whole = np.concatenate([episode(*one)[name] for one in each])
            assert np.array_equal(joined[:, stream].numpy(), whole[: len(joined)])
    assert sum(braid.lengths) + len(joined) * streams == sum(len(each) for each in laid(*by_hand))


def test_missing_latents_are_zero_and_other_columns_left_out():
    braid = Braid(LAYOUT, 1)
    braid.add(episode(3))
    latents = np.arange(9, dtype=np.int16).reshape(3, 3)
    braid.add(episode(2) | {"deter": latents.view(note("bfloat16")), "stoch": np.ones((3, 2), np.uint8)})
    block = braid.block()
    assert block.keys() == LAYOUT.keys()
    assert block["deter"].dtype == torch.bfloat16 and not block["deter"][:4].any() and not block["stoch"][:4].any()
    assert torch.equal(block["deter"][4:, 0].view(torch.int16), torch.from_numpy(latents)) and block["stoch"][4:].all()


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"vector": np.zeros((4, 3), np.float32)},
            r"one\.npz has float32 \(3,\) as vector, this run needs float32 \(2,\)",
        ),
        ({"action": np.zeros((4, 1), np.float32)}, r"one\.npz has float32 \(1,\) as action, this run needs int64 \(\)"),
        ({"vector": None}, r"one\.npz has no vector, this run needs float32 \(2,\)"),
    ],
)
def test_an_episode_of_another_task_is_refused(change, message):
    other = {name: value for name, value in (episode(3) | change).items() if value is not None}
    with pytest.raises(UserError, match=message):
        Braid(LAYOUT, 1).add(other, "one.npz")


def test_the_last_block_takes_all_that_waits():
    braid = Braid(LAYOUT, 2)
    braid.add(episode(9, 0))
    braid.add(episode(2, 1))
    found = blocks(braid, last=True)
    long, short = laid([(9, 0)], [(2, 1)])
    assert found["action"].T.tolist() == [long[:6].tolist(), [*short.tolist(), *long[6:9].tolist()]]
    assert found["is_first"].T.int().tolist() == [[1, 0, 0, 0, 0, 0], [1, 0, 0, 1, 0, 0]]
    assert found["is_last"].T.int().tolist() == [[0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 1]]
    assert found["is_terminal"].T.int().tolist() == [[0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
    assert braid.lengths == [0, 0] and braid.last_block() is None


def test_the_last_block_leaves_out_less_than_a_row_of_each_and_cuts_nothing_for_it():
    braid = Braid(LAYOUT, 3)
    for number, steps in enumerate((4, 4, 4, 1)):
        braid.add(episode(steps, number))
    found = braid.last_block()
    assert found["action"].T.tolist() == [each.tolist() for each in laid([(4, 0)], [(4, 1)], [(4, 2)])]
    assert torch.equal(found["is_last"], found["is_terminal"]) and found["is_last"].sum() == 3
    assert sum(braid.lengths) == 0


def test_one_episode_is_shared_out_among_many_streams():
    braid = Braid(LAYOUT, 4)
    braid.add(episode(17))
    found = braid.last_block()
    assert found["action"].T.tolist() == [list(range(start, start + 4)) for start in (0, 4, 8, 12)]
    assert found["is_first"][0].all() and found["is_last"][-1].all() and found["is_last"].sum() == 4
    assert braid.block() is None and sum(braid.lengths) == 0
    braid.add(episode(2))
    assert braid.last_block() is None


def test_a_replay_takes_blocks():
    braid = Braid(LAYOUT, 3)
    for number in range(40):
        braid.add(episode(5 + number % 11, number))
    replay = Replay(3, 100, device=torch.device("cpu"), selectors={"uniform": 1.0}, seed=1)
    replay.allocate(LAYOUT)
    while (block := braid.block()) is not None:
        replay.add(block)
    windows = replay.sample(32, 12)
    inside = ~windows["is_first"][:, 1:]
    steps = windows["action"].diff(dim=1)
    assert (steps[inside] == 1).all() and (steps[~inside] != 1).all() and (~inside).any()
    assert torch.equal(windows["is_last"][:, :-1], windows["is_first"][:, 1:])
