"""Compiled functions take over from plain ones while an agent learns, and it learns the same."""

from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents import changeover, compiled
from reverie.agents.dreamer import Dreamer
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.nn.graph import WARMUP
from reverie.training.compilers import Compilers
from reverie.training.compiling import blank
from reverie.training.opening import layout_of_rows

VECTOR = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
IMAGES = spaces.Dict({"image": spaces.Box(0, 255, (64, 64, 3), np.uint8)})
NAMES = {"encoded", "reconstructed", "predicted", "shares", "all_steps", "step", "model/optimizer"}
NAMES |= {f"task/{name}" for name in ("foresee", "returned", "judged", "replay_loss", "dream")}


class Crew:
    """Compiles nothing: what it says to be finished, the agent compiles itself."""

    def __init__(self):
        self.done, self.reason, self.closed = set(), "", False

    def finished(self):
        return self.done

    def trouble(self):
        return self.reason

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    """Traced as for a GPU and no more, which is enough to see what is compiled."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    torch._dynamo.reset()


def agent_of(compilers, fast="compile", observation=VECTOR, **options):
    torch.manual_seed(0)
    options = {
        "run.fast": fast, "run.compilers": compilers, "replay.batch": 2, "replay.length": 3, "behavior.horizon": 2,
        "optim.model.warmup": 0, "optim.model.lr": 1e-2,
        **{name.replace("__", "."): value for name, value in options.items()},
    }  # fmt: skip
    config = replaced(stacked(["dreamer_v3", "debug"]), options)
    return Dreamer(observation, spaces.Discrete(3), config, torch.device("cpu"))


def rows_of(agent, observation=VECTOR):
    rows = blank(agent, layout_of_rows(agent, observation, 1, agent.device))
    rows["reward"] += torch.arange(rows["reward"].shape[1])
    return rows


def compiled_ones(agent):
    found = {name: getattr(each.owner, each.attribute) for name, each in agent.regions.items()}
    return {name for name, each in found.items() if hasattr(each, "_torchdynamo_orig_callable")}


def lines(caplog):
    return [record.message for record in caplog.records if record.name == "reverie"]


def alike(agent, other):
    for (name, value), found in zip(agent.state_dict().items(), other.state_dict().values()):
        torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-4, msg=name)
    for stepper, second in zip(agent.steppers.values(), other.steppers.values()):
        torch.testing.assert_close(second.mean, stepper.mean, rtol=1e-3, atol=1e-4)
        assert second.count == stepper.count
    assert torch.equal(agent.generator.get_state(), other.generator.get_state())


def test_functions_change_one_after_the_other_and_learning_goes_on_as_without(caplog, monkeypatch):
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    plain, agent, crew = agent_of(0, "off"), agent_of(2), Crew()
    agent.changeover.begin(crew)
    rows = rows_of(plain)
    agent.generator.set_state(plain.generator.get_state())
    assert set(agent.regions) == NAMES
    for finished in (set(), {"predicted", "task/dream"}, {"step"}, NAMES):
        crew.done = crew.done | finished
        expected, found = plain.learn_replay(rows), agent.learn_replay(rows)
        assert compiled_ones(agent) == crew.done
        assert expected.metrics.keys() == found.metrics.keys()
        for name, value in expected.metrics.items():
            torch.testing.assert_close(found.metrics[name], value, rtol=1e-3, atol=1e-5, msg=name)
    alike(plain, agent)
    assert crew.closed and not lines(caplog)
    for _ in range(WARMUP + 3):
        agent.learn_replay(rows)
    (line,) = lines(caplog)
    assert line.startswith("updates run at full speed after ") and agent.changeover is None


@pytest.mark.parametrize("observation", [VECTOR, IMAGES], ids=["vector", "images"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_before_anything_is_compiled_updates_are_plain_ones(precision, observation):
    plain, agent = (
        agent_of(n, fast, observation, world__precision=precision) for n, fast in ((0, "off"), (2, "compile"))
    )
    agent.changeover.begin(Crew())
    rows = rows_of(plain, observation)
    agent.generator.set_state(plain.generator.get_state())
    expected, found = plain.learn_replay(rows).metrics, agent.learn_replay(rows).metrics
    assert not compiled_ones(agent)
    rough = {"rtol": 0.1, "atol": 0.1} if precision == "bfloat16" else {"rtol": 1e-3, "atol": 1e-5}
    for name in ("world/dyn_loss", "world/reward_loss", "train/model_grad_norm"):
        torch.testing.assert_close(found[name], expected[name], **rough, msg=name)


def test_what_others_do_not_compile_the_agent_does(caplog):
    agent, crew = agent_of(2), Crew()
    agent.changeover.begin(crew)
    rows = rows_of(agent)
    crew.done, crew.reason = {"predicted"}, "the process has ended"
    agent.learn_replay(rows)
    assert compiled_ones(agent) == NAMES and crew.closed
    (line,) = lines(caplog)
    assert line == "updates wait while 11 functions are compiled: the process has ended"
    assert agent.changeover is None


def test_nobody_is_waited_for_for_ever(monkeypatch, caplog):
    monkeypatch.setattr(changeover, "PATIENCE", 0.0)
    agent = agent_of(2)
    agent.changeover.begin(Crew())
    agent.learn_replay(rows_of(agent))
    assert compiled_ones(agent) == NAMES and "within 0 s" in caplog.text


def test_what_cannot_be_compiled_stays_plain_and_says_why(monkeypatch, caplog):
    monkeypatch.setattr(compiled, "BACKEND", "no such compiler")
    agent, crew = agent_of(2), Crew()
    agent.changeover.begin(crew)
    rows = rows_of(agent)
    crew.reason = "no such compiler"
    for _ in range(2):
        agent.learn_replay(rows)
    assert not compiled_ones(agent) and agent.changeover is None
    (line,) = lines(caplog)
    assert line.startswith("updates are not compiled, which is slower: ")


@pytest.mark.parametrize("how", ["fails", "closed"])
def test_an_agent_learns_on_without_the_processes_it_had(how, caplog):
    agent = agent_of(2)
    rows, crew = rows_of(agent), Compilers(1)
    layout = layout_of_rows(agent, VECTOR, 1, agent.device)
    crew.order({"encoded": agent.regions["encoded"]}, partial(open, "/no/such/file"), layout, 1)
    agent.changeover.begin(crew)
    if how == "closed":
        agent.close()
    else:
        crew.processes[0].wait()
    for _ in range(WARMUP + 4):
        agent.learn_replay(rows)
    reason = {"fails": "No such file", "closed": "were ended"}[how]
    (line,) = lines(caplog)
    assert line.startswith("updates wait while 12 functions are compiled: ") and reason in line
    assert compiled_ones(agent) == NAMES and agent.changeover is None


def test_an_agent_without_others_compiles_at_once():
    agent = agent_of(2)
    agent._change_over(agent.changeover)
    assert compiled_ones(agent) == NAMES and agent.changeover is None
    assert compiled_ones(agent_of(0)) == compiled_ones(agent_of(None)) == NAMES
