"""Updates by programs of layers: the same numbers as plain ones."""

import copy
import logging
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents import native
from reverie.agents.behavior import Behavior
from reverie.agents.dreamer import Dreamer
from reverie.agents.native import NativeDreaming
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.nn.heads import NumberHead
from reverie.nn.layers import Layers
from reverie.nn.native.heads import NativeHead
from reverie.nn.native.layered import Layered
from reverie.nn.native.machine import Unfit, machine
from reverie.nn.native.memory import Memory
from reverie.nn.outputs import Number, TwoHot
from reverie.tools.bench_rows import Fiction
from reverie.world.native import NativeScan

OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "choices": spaces.MultiDiscrete([3, 3]),
    "continuous": spaces.Box(-2, 2, (2,), np.float32),
    "mixed": spaces.MultiDiscrete([3, 4]),
}
SMALL = {"replay.prefill": 0, "optim.model.warmup": 0, "replay.batch": 3, "replay.length": 9, "world.bins": 15}
SMALL |= {"behavior.starts": 0, "behavior.horizon": 12, "optim.model.lr": 1e-3, "world.deter": 64, "world.units": 32}

pytestmark = pytest.mark.usefixtures("c_compiler")


def agent_of(preset, action, fast, more=None):
    options = SMALL | {"run.fast": fast} | (more or {})
    torch.manual_seed(0)  # by what other tests have drawn, gradients of 0 but for rounding would go either way
    return Dreamer(OBSERVATION, ACTIONS[action], replaced(stacked([preset, "debug"]), options), torch.device("cpu"))


def rows_of(agent, action):
    length = 9 + int(agent.replay.start == "stored")
    fiction = Fiction(agent, OBSERVATION, ACTIONS[action], 3, torch.device("cpu"))
    return {key: value.transpose(0, 1).contiguous() for key, value in fiction.rows(length).items()}


@pytest.mark.parametrize(
    ("preset", "action"),
    [
        ("dreamer_v3", "discrete"),
        ("dreamer_v3", "choices"),
        ("dreamer_v3", "continuous"),
        ("cartpole", "discrete"),
        ("dreamer_v3_2023", "discrete"),
    ],
)
def test_updates_are_the_same(preset, action, assert_updates_alike):
    plain, fast = (agent_of(preset, action, how) for how in ("off", "native"))
    fast.load_state_dict(plain.state_dict())
    assert_updates_alike(plain, fast, rows_of(plain, action))
    assert isinstance(fast.behavior.critic.pred, NativeHead)
    if preset != "dreamer_v3_2023":  # whose first state is learned
        assert isinstance(fast.world.rssm.scan, NativeScan)
        assert isinstance(fast.behavior.dreamt, NativeDreaming)


@pytest.mark.parametrize(
    ("precision", "deter", "rounds"), [("auto", 256, True), ("auto", 128, False), ("float32", 256, False)]
)
def test_large_models_round_their_products(precision, deter, rounds):
    if not machine().halves():
        pytest.skip("this processor has no fast products in bfloat16")
    sizes = {"world.deter": deter, "world.hidden": 64, "world.units": 64, "world.precision": precision}
    plain, fast = (agent_of("dreamer_v3", "discrete", how, sizes) for how in ("off", "native"))
    fast.load_state_dict(plain.state_dict())
    rows = rows_of(plain, "discrete")
    one, other = (agent.learn_replay(rows).metrics for agent in (plain, fast))
    assert any(op.half for op in fast.world.rssm.scan.forward.ops) == rounds
    assert any(op.half for op in fast.behavior.dreamt.program.ops) == rounds
    torch.testing.assert_close(one, other, rtol=2e-3 if rounds else 1e-4, atol=1e-4)
    assert (one["world/kl"] - other["world/kl"]).abs().gt(1e-4) == rounds


def test_dreams_of_several_threads_are_those_of_one():
    agent = agent_of("dreamer_v3", "continuous", "native")
    agent.learn_replay(rows_of(agent, "continuous"))
    rssm, policy, before = agent.world.rssm, agent.behavior.policy, torch.get_num_threads()
    start, draws = rssm.initial(100), policy.noise((5, 100), agent.generator)
    noise = rssm.latent.noise((5, 100), agent.generator)
    dreams = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        dreams.append(agent.behavior.dreamt(rssm, start, draws, noise))
    torch.set_num_threads(before)
    for one, two in zip(*dreams):
        assert one.equal(two)


@pytest.mark.parametrize("action", ["discrete", "continuous"])
def test_dreams_keep_to_the_limit_of_outputs(action):
    plain, fast = (agent_of("dreamer_v3", action, how) for how in ("off", "native"))
    for agent in (plain, fast):
        agent.behavior.limit = 0.3
    fast.learn_replay(rows_of(fast, action))  # programs are made for it
    torch.nn.init.normal_(plain.behavior.actor[-1].weight)
    fast.load_state_dict(plain.state_dict())
    assert isinstance(fast.behavior.dreamt, NativeDreaming)
    rssm, policy, generator = plain.world.rssm, plain.behavior.policy, plain.generator
    start, draws, noise = rssm.initial(50), policy.noise((4, 50), generator), rssm.latent.noise((4, 50), generator)
    with torch.no_grad(), fast.native.memory:
        expected, found = (agent.behavior.dreamt(rssm, start, draws, noise) for agent in (plain, fast))
        plain.behavior.limit = float("inf")
        free = plain.behavior.dreamt(rssm, start, draws, noise)
    for one, two, three in zip(expected, found, free):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(three, one)


def test_what_dreams_have_found_is_not_worked_out_again(monkeypatch):
    agent = agent_of("dreamer_v3", "discrete", "native")
    rows = rows_of(agent, "discrete")
    agent.learn_replay(rows)
    asked = []
    for name in ("actor", "critic"):
        layered = getattr(agent.behavior, name).forward
        monkeypatch.setattr(layered.there, "run", spied(layered.there.run, asked, name))
    for head in (agent.world.reward_head, agent.world.cont_head, agent.behavior.critic, agent.behavior.slow):
        monkeypatch.setattr(head.pred.program, "run", spied(head.pred.program.run, asked, "pred"))
    agent.learn_replay(rows)
    assert asked == []  # replayed rows are too few for the programs of heads and layers
    assert not agent.native.memory.known


def spied(run, asked, name):
    def spy(given, rows, steps=1):
        asked.append((name, rows))
        run(given, rows, steps)

    return spy


def test_what_heads_expect():
    plain, fast = (agent_of("dreamer_v3", "discrete", how) for how in ("off", "native"))
    fast.load_state_dict(plain.state_dict())
    fast.learn_replay(rows_of(fast, "discrete"))
    heads = [(agent.world.reward_head, agent.world.cont_head, agent.behavior.critic) for agent in (plain, fast)]
    feature = torch.randn(7, 100, plain.world.features)
    for one, two in zip(*heads):
        for parameter in one.parameters():
            torch.nn.init.normal_(parameter, 0, 0.3)
        two.load_state_dict(one.state_dict())
        with torch.no_grad(), fast.native.memory:
            # bins reach 5e8 and nearly cancel, so rounding is measured by what they are without their signs
            sizes = one(feature).softmax(-1) @ one.output.edges.abs() if isinstance(one.output, TwoHot) else 1.0
            assert ((two.pred(feature) - one.pred(feature)).abs() <= 1e-5 * (1 + sizes)).all()
        assert two.pred(feature).requires_grad


def test_even_heads_expect_exactly_nothing():
    agent = agent_of("dreamer_v3", "discrete", "native")
    with torch.no_grad(), (memory := Memory()):
        assert NativeHead(agent.behavior.critic, memory)(torch.randn(300, agent.world.features)).eq(0).all()


def test_an_agent_with_programs_can_be_copied_and_saved():
    agent = agent_of("dreamer_v3", "discrete", "native")
    agent.learn_replay(rows_of(agent, "discrete"))
    feature = torch.randn(300, agent.world.features)
    for other in (copy.deepcopy(agent.behavior), pickle.loads(pickle.dumps(agent.behavior))):
        torch.nn.init.normal_(other.critic.linear.weight)
        with torch.no_grad():
            assert not torch.equal(other.critic.pred(feature), agent.behavior.critic.pred(feature))
        assert not isinstance(other.dreamt, NativeDreaming)
    assert isinstance(agent.behavior.dreamt, NativeDreaming)


class Doubled(Number):
    """An output of one's own."""

    size = 1

    def pred(self, x):
        return 2 * x.squeeze(-1)


class Own(NumberHead):
    """A head of one's own."""


class Still(Behavior):
    """A behaviour of one's own."""


def test_classes_built_upon_ours_run_as_they_are():
    agent = agent_of("dreamer_v3", "discrete", "off")
    with pytest.raises(Unfit, match="Doubled"):
        NativeHead(NumberHead(Layers(), 8, 16, 1, Doubled()), Memory())
    agent.behavior.__class__ = Still
    with pytest.raises(Unfit, match="Still"):
        NativeDreaming(agent.world.rssm, agent.behavior, [], Memory())
    with pytest.raises(Unfit, match="Own"):
        Layered(Own(Layers(), 8, 16, 1, TwoHot(15)), torch.nn.Linear(8, 8))


def test_coders_without_layers_run_as_they_are(assert_updates_alike):
    plain, fast = (agent_of("dreamer_v3", "discrete", how, {"world.layers": 0}) for how in ("off", "native"))
    fast.load_state_dict(plain.state_dict())
    assert_updates_alike(plain, fast, rows_of(plain, "discrete"))


@pytest.mark.parametrize("words", ["false", "/nonexistent/cc", 'gcc "'])
def test_compilers_that_do_not_work_are_told_in_a_line(words, monkeypatch):
    monkeypatch.setenv("CC", words)
    machine.cache_clear()
    try:
        with pytest.raises(Unfit, match=r"^[^\n]+$"):
            machine()
    finally:
        machine.cache_clear()


def test_what_has_no_program_runs_as_it_is_and_says_why(caplog):
    caplog.set_level(logging.INFO)
    agent = agent_of("dreamer_v3", "mixed", "auto")
    agent.learn_replay(rows_of(agent, "mixed"))
    assert isinstance(agent.world.rssm.scan, NativeScan)
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("dreamt of Behavior runs operation by operation, which is slower: ")


def test_without_a_compiler_updates_run_as_they_are(monkeypatch, caplog):
    def none():
        raise Unfit("there is no C compiler: install gcc or clang")

    monkeypatch.setattr(native, "machine", none)
    agent = agent_of("dreamer_v3", "discrete", "auto")
    agent.learn_replay(rows_of(agent, "discrete"))
    assert not isinstance(agent.world.rssm.scan, NativeScan)
    (line,) = [record.message for record in caplog.records]
    assert line == "updates run operation by operation, which is slower: there is no C compiler: install gcc or clang"
