"""The replay against rows that can be counted: the step of environment e at time t is e * 1e6 + t."""

import pytest
import torch

from reverie.config.errors import UserError
from reverie.data.replay import Replay

CPU = torch.device("cpu")


def counted(start, stop, envs, episode=5):
    """Rows from `start` to `stop`, with episodes of `episode` rows."""
    time = torch.arange(start, stop)[:, None].expand(-1, envs)
    return {
        "step": time + torch.arange(envs) * 1_000_000,
        "is_first": time % episode == 0,
        "is_last": time % episode == episode - 1,
        "deter": torch.zeros(stop - start, envs, 3, dtype=torch.bfloat16),
    }


def make(envs=3, capacity=60, storage="ram", **options):
    return Replay(envs, capacity, storage=storage, device=CPU, **{"selectors": {"uniform": 1.0}, **options})


@pytest.fixture(params=["ram", "disk"])
def replay(request, tmp_path):
    return make(storage=request.param, folder=tmp_path)


def held(replay, length, tries=40):
    """All windows that many samples show, as (environment, first time)."""
    steps = torch.cat([replay.sample(64, length)["step"] for _ in range(tries)])
    assert (steps.diff(dim=1) == 1).all()
    return {divmod(first, 1_000_000) for first in steps[:, 0].tolist()}


@pytest.mark.parametrize("total", [4, 19, 20, 21, 33, 40, 57])
def test_windows_are_consecutive_rows_of_one_environment_and_all_of_them_occur(replay, total):
    for t in range(total):
        replay.add(counted(t, t + 1, 3))
    first = max(0, total - 20)
    assert len(replay) == (total - first) * 3
    assert held(replay, 4) == {(env, t) for env in range(3) for t in range(first, total - 3)}


def test_the_longest_window_is_the_whole_ring(replay):
    replay.add(counted(0, 27, 3))
    assert held(replay, 20) == {(0, 7), (1, 7), (2, 7)}
    with pytest.raises(ValueError, match="no window of 21"):
        replay.sample(1, 21)


def test_against_a_list_of_rows(replay):
    """Chunks of any size, longer than the ring too, then everything a sample says against plain lists."""
    generator = torch.Generator().manual_seed(3)
    rows, latents = [], {}
    for round in range(60):
        count = int(torch.randint(1, 30 if round % 10 == 0 else 5, (), generator=generator))
        new = counted(len(rows), len(rows) + count, 3)
        replay.add(new)
        rows += [{name: value[t] for name, value in new.items()} for t in range(count)]
        length = int(torch.randint(1, min(len(rows), 20) + 1, (), generator=generator))
        sample = replay.sample(8, length)
        assert sample["step"].shape == sample["index"].shape == (8, length) and sample["deter"].shape == (8, length, 3)
        for b in range(8):
            env, first = divmod(int(sample["step"][b, 0]), 1_000_000)
            assert max(0, len(rows) - 20) <= first <= len(rows) - length
            for t in range(length):
                for name in ("step", "is_first", "is_last"):
                    assert sample[name][b, t] == rows[first + t][name][env]
                assert sample["deter"][b, t, 0] == latents.get((env, first + t), 0)
        fresh = torch.full((8, length, 3), float(round + 1))
        replay.update(sample["index"], {"deter": fresh})
        latents |= {divmod(step, 1_000_000): round + 1 for step in sample["step"].flatten().tolist()}


def test_dtypes_stay_as_given(replay):
    rows = {"image": torch.randint(255, (6, 3, 4, 4, 1)).byte(), "half": torch.rand(6, 3, 2).half()}
    replay.add(rows)
    sample = replay.sample(2, 6)
    env = int(sample["index"][0, 0])
    assert sample["image"].dtype == torch.uint8 and torch.equal(sample["image"][0], rows["image"][:, env])
    assert sample["half"].dtype == torch.float16 and torch.equal(sample["half"][0], rows["half"][:, env])


def test_a_capacity_that_environments_do_not_divide_is_rounded_up():
    replay = make(envs=3, capacity=10)
    replay.add(counted(0, 50, 3))
    assert len(replay) == 12 and held(replay, 4) == {(0, 46), (1, 46), (2, 46)}


def test_written_back_latents_are_seen_by_the_next_sample(replay):
    replay.add(counted(0, 33, 3))
    sample = replay.sample(16, 6)
    replay.update(sample["index"][:, 1:], {"deter": sample["step"][:, 1:, None].expand(-1, -1, 3) % 1000})
    changed = set(sample["step"][:, 1:].flatten().tolist())
    for _ in range(20):
        again = replay.sample(16, 6)
        for step, deter in zip(again["step"].flatten().tolist(), again["deter"].flatten(0, 1)):
            assert (deter == (step % 1000 if step in changed else 0)).all()


def test_of_a_step_in_several_windows_the_last_one_counts():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # with more than one the plain order of writing is up to chance
    try:
        replay = make(envs=1, capacity=20)
        replay.add({"deter": torch.zeros(20, 1, 512)})
        index = replay.sample(256, 16)["index"]
        window = torch.arange(256.0)[:, None].expand(-1, 16)
        replay.update(index, {"deter": window[..., None].expand(-1, -1, 512)})
    finally:
        torch.set_num_threads(threads)
    last = torch.stack([window[index == step][-1] for step in range(20)])
    assert torch.equal(replay.flat["deter"], last[:, None].expand(-1, 512))


def test_an_update_that_comes_late_leaves_rows_alone_that_replaced_its_own():
    replay = make(envs=2, capacity=20)
    replay.add(counted(0, 10, 2))
    index = replay.sample(32, 4)["index"]
    replay.add(counted(10, 13, 2))
    replay.update(index, {"deter": torch.ones(32, 4, 3)})
    sample = replay.sample(200, 3)
    time = sample["step"] % 1_000_000
    assert set(time[time >= 10].tolist()) == {10, 11, 12}
    assert (sample["deter"][time >= 10] == 0).all() and (sample["deter"][time < 10] == 1).any()


def test_ready_asks_for_different_windows_but_not_for_more_than_there_can_be():
    replay = make(envs=2, capacity=20)
    assert not replay.ready(1, 4)
    replay.add(counted(0, 4, 2))
    assert replay.ready(2, 4) and not replay.ready(3, 4) and not replay.ready(1, 5)
    replay.add(counted(4, 10, 2))
    assert replay.ready(1000, 4)
    with pytest.raises(
        UserError, match="keeps 10 rows of each, fewer than the 11 of a window: raise it to at least 22"
    ):
        replay.ready(1, 11)


def test_the_seed_decides_what_is_sampled():
    samples = []
    for seed in (0, 0, 1):
        replay = make(seed=seed)
        replay.add(counted(0, 20, 3))
        samples.append(replay.sample(16, 4)["step"])
    assert torch.equal(samples[0], samples[1]) and not torch.equal(samples[0], samples[2])


def test_rows_that_do_not_fit_are_refused():
    replay = make()
    replay.add(counted(0, 2, 3))
    rows = counted(2, 3, 3)
    for wrong in (
        {name: rows[name] for name in ("step", "deter")},
        rows | {"deter": rows["deter"].float()},
        rows | {"deter": rows["deter"][..., :2]},
        counted(2, 3, 2),
    ):
        with pytest.raises(ValueError):
            replay.add(wrong)
    with pytest.raises(ValueError, match="no column value"):
        replay.update(torch.zeros(1, 1, dtype=torch.int64), {"value": torch.zeros(1, 1)})
    with pytest.raises(ValueError, match="adds index itself"):
        make().add({"index": torch.zeros(1, 3)})
    assert len(replay) == 6


def test_a_replay_that_cannot_fit_is_refused_at_its_first_rows():
    replay = make(capacity=10**14)
    with pytest.raises(UserError, match="lower --replay"):
        replay.add(counted(0, 1, 3))


def test_memory_is_taken_only_as_it_fills():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    replay, before = make(envs=1, capacity=50_000), resident()
    replay.add({"image": torch.zeros(10, 1, 64, 64, 3, dtype=torch.uint8)})
    assert resident() - before < 100e6 < replay.columns["image"].nbytes


def test_graphs_are_not_kept():
    replay = make(envs=1, capacity=8)
    weight = torch.ones(1, requires_grad=True)
    replay.add({"deter": weight * torch.ones(8, 1, 1)})
    sample = replay.sample(2, 4)
    replay.update(sample["index"], {"deter": weight * sample["deter"]})
    assert not replay.sample(2, 4)["deter"].requires_grad


def test_a_replay_saved_on_another_kind_of_device_goes_on():
    """Random states of a GPU have 16 bytes and fit no other device: the rows count, and new numbers are drawn."""
    replay, other = make(), make()
    replay.add(counted(0, 20, 3))
    other.restore(replay.state() | {"generator": torch.zeros(16, dtype=torch.uint8)})
    assert (other.first, other.total) == (0, 20)
