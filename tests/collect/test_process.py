"""Generator processes: rows in order, the right weights, nobody far ahead, and deaths that do no harm."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from itertools import pairwise

import pytest
import torch

import reverie
from reverie.build import make_parts
from reverie.collect.gathering import Report
from reverie.config.errors import UserError
from reverie.nn import ranks
from running import alive
from waiting import until

ROWS, ENVS = 4, 3


def parts_of(*presets, **options):
    options = {"task": "toy_count", "envs__count": ENVS, "collect__mode": "process", "collect__generators": 2,
               "collect__rows": ROWS, "run__eval_every": 0, "run__eval_at_end": False, **options}  # fmt: skip
    return closing(make_parts(reverie.configure(*presets, **options)))


def follows(before, after):
    """Whether a row of one environment follows another in the counting environment."""
    (step, label), (next_step, next_label) = before["vector"].tolist(), after["vector"].tolist()
    if before["is_last"]:
        return bool(after["is_first"]) and next_step == 0 and after["reward"] == 0
    return next_step == step + 1 and next_label == label and not after["is_first"] and after["reward"] == next_step


def breaks(chunks, env):
    """The chunks whose first row of an environment does not follow what was before; within a chunk all do."""
    found, before = [], None
    for number, chunk in enumerate(chunks):
        rows = [{key: value[t, env] for key, value in chunk.rows.items()} for t in range(ROWS + 1)]
        assert all(follows(*pair) for pair in pairwise(rows))
        if before is not None and not all(torch.equal(before[key], rows[0][key]) for key in ("vector", "is_first")):
            found.append(number)
        before = rows[-1]
    return found


def lots_ready(crew):
    """How many lots of rows a generator has collected that nobody has taken."""
    while crew.pipe.poll(0):
        crew.hear()
    return len(crew.reports)


def pids(collector):
    return [each.process for each in collector.crews]


def test_rows_of_generators_follow_each_other_and_a_killed_one_does_no_harm(caplog):
    with parts_of("dreamer_v3", "debug") as parts, caplog.at_level(logging.WARNING, "reverie"):
        collector = parts.collector
        chunks = [collector.collect(1) for _ in range(6)]
        assert not any(breaks(chunks, env) for env in range(ENVS)) and not any(chunk.severed for chunk in chunks)
        assert [episode.score for chunk in chunks for episode in chunk.episodes] == [55.0] * (2 * ENVS)
        assert {episode.env for chunk in chunks for episode in chunk.episodes} == set(range(ENVS))
        assert sum(chunk.steps for chunk in chunks) == 6 * ROWS * ENVS - 2 * ENVS  # a first row is no step
        labels = {tuple(chunk.rows["vector"][:, env, 1].tolist()) for env in range(ENVS) for chunk in chunks[:1]}
        assert len(labels) == ENVS
        old = pids(collector)
        os.kill(old[0], signal.SIGKILL)
        later = [collector.collect(1) for _ in range(5)]
        lost = [number for number, chunk in enumerate(later) if chunk.severed]
        assert len(lost) == 1 and later[lost[0]].severed == (0, 1)  # the environments of the first generator
        assert later[lost[0]].rows["is_first"][0, :2].all()
        assert [breaks([chunks[-1], *later], env) for env in range(ENVS)] == [[lost[0] + 1]] * 2 + [[]]
        assert "generator 0 was killed by signal 9" in caplog.text and later[-1].metrics["collect/generators_lost"] == 1
        assert pids(collector)[0] != old[0] and pids(collector)[1] == old[1]
        new = pids(collector)
    assert not any(alive(pid) for pid in new)


def test_a_run_goes_on_when_the_process_that_forks_is_killed(caplog):
    with parts_of(agent__name="random") as parts, caplog.at_level(logging.WARNING, "reverie"):
        collector = parts.collector
        before = collector.collect(1)
        nursery = collector.crews[0].nursery
        old, forks = pids(collector), nursery.process.pid
        for each in (forks, *old):
            os.kill(each, signal.SIGKILL)
        chunks = [before, *(collector.collect(1) for _ in range(8))]
        assert collector.losses == 2 and [crew.lives for crew in collector.crews] == [2, 2]
        assert sum(bool(chunk.severed) for chunk in chunks) in (1, 2) and "generator 1 ended: a new" in caplog.text
        assert nursery.process.is_alive() and nursery.process.pid != forks and not any(map(alive, old))


def test_generators_wait_for_the_learner_and_act_with_what_it_publishes(monkeypatch):
    with parts_of("dreamer_v3", "debug", collect__ahead=2, replay__prefill=0) as parts:
        collector, agent = parts.collector, parts.agent
        monkeypatch.setattr(ranks, "count", lambda: 2)
        assert collector.collect(1).metrics["collect/lag"] == 0
        assert agent.acted == 2 * ROWS * ENVS  # those of the other that learns along, too
        until(lambda: all(lots_ready(crew) == 2 for crew in collector.crews))
        time.sleep(0.5)  # in which none goes further
        assert all(lots_ready(crew) == 2 for crew in collector.crews)
        for parameter in agent.behavior.actor[-1].parameters():
            parameter.data.zero_()
        agent.behavior.actor[-1].bias.data[1] = 100.0
        collector.publish(7)
        lags, actions = [], []
        for _ in range(4):
            chunk = collector.collect(1)
            lags.append(chunk.metrics["collect/lag"])
            actions.append(chunk.rows["action"][:-1])
        assert lags == [7, 7, 0, 0]  # two slots were full before it was published
        shares = [torch.stack(part).eq(1).float().mean() for part in (actions[:2], actions[2:])]
        assert shares[0] < 0.8 < shares[1]  # one action in a hundred stays random
        assert 0 < chunk.metrics["collect/generators_waited"] < 1


def test_rollouts_of_ppo_are_acted_upon_with_the_very_weights_that_learn_from_them():
    with parts_of("debug", task="gym_CartPole-v1", ppo__normalize_observation=True, ppo__rollout=8) as parts:
        collector, agent = parts.collector, parts.agent
        updates = 0
        for _ in range(3):
            rows = collector.collect(agent.rollout).rows
            with torch.no_grad():
                policy, value = agent.net({key: x[:-1] for key, x in rows.items()})
            assert torch.allclose(policy.logp(rows["action"][:-1]), rows["logp"][:-1], atol=1e-5)
            assert torch.allclose(value, rows["value"][:-1], atol=1e-5)
            updates += agent.learn_rollout(rows).updates
            collector.publish(updates)


def test_a_generator_that_always_dies_ends_the_run(caplog):
    with parts_of("debug", envs__max_restarts=2) as parts:
        launch = type(parts.collector.crews[0]).launch
        for each in parts.collector.crews:
            each.launch = lambda *memory, each=each: (launch(each, *memory), os.kill(each.process, signal.SIGKILL))
        with pytest.raises(UserError, match=r"generator \d was killed by signal 9, 2 times in a row"):
            parts.collector.collect(1)


def test_wrong_settings_are_refused():
    with (
        pytest.raises(UserError, match=r"--collect.generators 4 have only --envs.count 3"),
        parts_of(collect__generators=4),
    ):
        pass
    with pytest.raises(UserError, match=r"--envs.backend process"), parts_of(envs__backend="process"):
        pass
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match=r"--collect.device cuda: torch sees"), parts_of(collect__device="cuda"):
            pass


def test_an_agent_elsewhere_than_the_rows_gets_them_where_it_is():
    with closing(make_parts(reverie.configure("debug", task="toy_count", run__eval_every=0))) as parts:
        collector = parts.collector
        rows = collector.collect(2).rows
        collector.buffer = {key: value.to("meta") for key, value in rows.items()}  # memory of another device
        act, seen = collector.agent.act, []
        collector.agent.act = lambda row, *rest: seen.append(row) or act(row, *rest)
        chunk = collector.collect(2)
        assert {value.device.type for value in chunk.rows.values()} == {"meta"}
        assert {value.device.type for row in seen for value in row.values()} == {"cpu"}
        assert torch.equal(seen[0]["vector"], rows["vector"][-1]) and (collector.latest["vector"][:, 0] == 4).all()


WORLDS = textwrap.dedent("""
    import time
    from contextlib import suppress
    from pathlib import Path
    from reverie.envs.toy import Count

    class Hangs(Count):
        def step(self, action):
            if self.steps == 6:
                with suppress(FileExistsError):  # one alone is the first, however close they are
                    Path(__file__).with_name("hung").touch(exist_ok=False)
                    time.sleep(1000)
            return super().step(action)
""")


def test_a_generator_that_hangs_is_replaced(tmp_path, monkeypatch, caplog):
    (tmp_path / "hanging_worlds.py").write_text(WORLDS)
    monkeypatch.syspath_prepend(str(tmp_path))
    with parts_of(task="hanging_worlds:Hangs", agent__name="random", envs__timeout=5.0) as parts:
        with caplog.at_level(logging.WARNING, "reverie"):
            chunks = [parts.collector.collect(1) for _ in range(6)]
        assert "has not collected 4 rows within" in caplog.text and parts.collector.losses >= 1
        assert sum(bool(chunk.severed) for chunk in chunks) == parts.collector.losses


def test_a_slow_generator_has_time_for_its_first_rows():
    with parts_of(agent__name="random", envs__timeout=100.0) as parts:
        collector, crew = parts.collector, parts.collector.crews[0]  # 2 environments, 4 rows
        crew.begun()
        crew.since -= 900
        assert not collector._overdue(crew)
        crew.since -= 101
        assert collector._overdue(crew) == "has not collected 4 rows within 1000 s (--envs.timeout 100)"
        crew.heard(Report(8, [], 0, 6.0, 0.0, []))
        crew.reports.clear()
        crew.since -= 60
        assert not collector._overdue(crew)
        crew.since -= 61
        assert "within 120 s" in collector._overdue(crew)
        crew.begun()
        crew.since -= 900
        assert not collector._overdue(crew)


LEARNER = textwrap.dedent("""
    import reverie
    from reverie.build import make_parts
    parts = make_parts(reverie.configure("debug", task="toy_count", collect__mode="process", collect__generators=2))
    parts.collector.collect(1)
    print(*(each.process for each in parts.collector.crews), flush=True)
    input()
""")


def test_generators_end_with_a_learner_that_is_killed():
    learner = subprocess.Popen(
        [sys.executable, "-c", LEARNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with learner:
        children = [int(word) for word in learner.stdout.readline().split()]
        assert len(children) == 2 and all(map(alive, children))
        learner.kill()
    assert until(lambda: not any(map(alive, children)))
