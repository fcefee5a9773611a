"""Processes that compile for a learner: they fill torch's cache, and never outlive it."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters

from reverie.actors import make_agent, make_stream
from reverie.agents import compiled
from reverie.agents.compiled import Region
from reverie.build import make_parts, make_rehearsal
from reverie.config.errors import UserError
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.tools.bench_rows import Fiction
from reverie.training import compilers as compilers_module
from reverie.training.compilers import Compilers, mark_of, marked, room, shares, suited
from reverie.training.compiling import blank
from reverie.training.opening import layout_of_rows
from running import alive
from waiting import until

CPU = torch.device("cpu")


def config_of(*presets, **options):
    options = {name.replace("__", "."): value for name, value in options.items()}
    options = {"run.fast": "compile", "run.compilers": 1, "run.threads": 1, "device": "cpu"} | options
    return replaced(stacked([*(presets or ("dreamer_v3",)), "debug"]), {"task": "toy_count"} | options)


def orders(compilers, names, config, make=None):
    """An agent whose functions of those names are on order."""
    with closing(make_stream(config)) as stream:
        agent = make_agent(config, *stream.spaces, CPU)
        layout = layout_of_rows(agent, stream.observation_space, config.envs.count, CPU)
        regions = {name: agent.regions[name] for name in names}
        compilers.order(regions, make or partial(make_agent, config, *stream.spaces, CPU), layout, 9)
    return agent, layout


REFUSED = partial(open, "/no/such/file")
ENDLESS = partial(time.sleep, 600)


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert mark_of(config_of(), CPU) is None and marked(config_of(), CPU)
    with closing(Compilers(0, tmp_path / "file" / "mark")) as compilers:
        compilers.done = {"encoded"}
        assert compilers.finished() == {"encoded"}


def test_as_many_processes_are_used_as_the_system_lets_there_be(monkeypatch):
    started = iter([subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)])

    def next_one(threads):
        try:
            return next(started)
        except StopIteration:
            raise BlockingIOError("no more processes") from None

    monkeypatch.setattr(compilers_module, "launched", next_one)
    monkeypatch.setattr(os, "killpg", os.kill)
    with closing(Compilers(3)) as compilers:
        (process,) = compilers.processes
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL


def test_shares_are_even_and_the_longest_come_first():
    costs = {"a": 1, "b": 12, "c": 6, "d": 5, "e": 1}
    found = shares({name: Region(None, name, cost) for name, cost in costs.items()}, 3)
    assert found == [["b"], ["c", "e"], ["d", "a"]]
    assert shares({"a": Region(None, "a", 1)}, 0) == []


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"run__compilers": None}, 0),
        ({"run__compilers": 3}, 3),
        ({"run__compilers": 3, "run__fast": "auto"}, 0),
        ({"run__compilers": 3, "run__fast": "graph"}, 0),
        ({"run__compilers": 3, "agent__name": "random"}, 0),
    ],
)
def test_who_gets_processes(options, count, caplog):
    assert suited(config_of(**options), CPU, own=False) == count
    assert suited(config_of(**options), CPU, own=True) == 0
    assert ("has no effect on your agent" in caplog.text) == (count > 0)
    with pytest.raises(UserError, match=r"--run.compilers -1: give 0"):
        suited(config_of(run__compilers=-1), CPU, own=False)


def test_functions_are_found_in_the_cache_that_a_process_has_filled(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    names = {"task/returned", "model/optimizer"}
    with closing(Compilers(1)) as compilers:
        agent, layout = orders(compilers, names, config_of())
        agent.changeover = None
        assert until(lambda: compilers.finished() == names or compilers.trouble()) and not compilers.trouble()
    counters.clear()
    agent.take(names)
    agent.learn_replay(blank(agent, layout))
    assert counters["aot_autograd"]["autograd_cache_hit"] == 2 and not counters["aot_autograd"]["autograd_cache_miss"]
    assert not counters["inductor"]["fxgraph_cache_miss"]


@pytest.mark.parametrize("how", ["fails", "is killed"])
def test_a_process_that_is_lost_is_reported(how, monkeypatch):
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    with closing(Compilers(1)) as compilers:
        orders(compilers, {"encoded"}, config_of(), REFUSED if how == "fails" else ENDLESS)
        if how == "is killed":
            compilers.processes[0].kill()
        assert until(lambda: not compilers.finished() and compilers.trouble())
    expected = {"fails": "says: [Errno 2] No such file or directory: '/no/such/file'", "is killed": "has ended"}[how]
    assert compilers.trouble() == f"a process that should have done so {expected}"


def test_processes_without_an_order_end_at_once_and_all_when_closed():
    compilers = Compilers(2)
    orders(compilers, {"encoded"}, config_of())
    assert [process.returncode for process in compilers.processes] == [None, -signal.SIGKILL]
    compilers.close()
    compilers.close()
    assert all(process.returncode == -signal.SIGKILL for process in compilers.processes)
    with closing(Compilers(1)) as compilers:
        compilers.order({}, REFUSED, {}, 0)
        assert compilers.processes[0].returncode is not None and "no room" in compilers.trouble()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_they_end_with_the_learner_however_it_ends(number):
    program = """
        import time
        from reverie.training.compilers import Compilers
        crew = Compilers(1)
        print(crew.processes[0].pid, flush=True)
        time.sleep(60)
    """
    learner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    helper = int(learner.stdout.readline())
    assert alive(helper)
    os.kill(learner.pid, number)
    learner.wait()
    learner.stdout.close()
    assert until(lambda: not alive(helper))


@pytest.mark.parametrize(
    ("preset", "start"), [("dreamer_v3", "stored"), ("dreamer_v1", "zeros"), ("dreamer_v3", "carried")]
)
def test_blank_rows_are_of_the_form_that_a_replay_gives(preset, start, tmp_path):
    config = config_of(preset, replay__start=start, run__compilers=0, logdir=str(tmp_path))
    with closing(make_parts(config)) as parts:
        rehearsal = make_rehearsal(config, tmp_path, CPU, parts.storage)
        fiction = Fiction(parts.agent, *parts.stream.spaces, config.envs.count, CPU)
        fiction.fill(rehearsal.replay, 200, config.replay.batch, rehearsal.length)
        sampled = rehearsal.replay.sample(rehearsal.batch, rehearsal.length)
        layout = {name: each for name, each in fiction.layout.items() if name not in parts.agent.transient}
        rows = blank(parts.agent, layout)
    sampled.pop("index")
    form = {name: (value.shape, value.dtype, value.stride()) for name, value in sampled.items()}
    assert form == {name: (value.shape, value.dtype, value.stride()) for name, value in rows.items()}


def test_a_run_is_made_with_them_and_closes_them(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    config = config_of(logdir=str(tmp_path))
    assert not mark_of(config, CPU).exists()
    with closing(make_parts(config)) as parts:
        crew = parts.agent.changeover.crew
        assert until(lambda: crew.finished() == set(parts.agent.regions) or crew.trouble()) and not crew.trouble()
        assert room(parts.agent, 0) > 0
    assert mark_of(config, CPU).exists() and not mark_of(config_of(world__deter=128), CPU).exists()
    assert all(process.returncode is not None for process in crew.processes)
