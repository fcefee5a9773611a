"""PPO by programs for a CPU: the same actions, gradients and metrics as plain operations."""

import copy
import logging
import pickle
from dataclasses import replace
from types import MethodType

import pytest
import torch
from gymnasium import spaces

from reverie.agents.ppo import METRICS, PPO
from reverie.agents.ppo_native import NativeActing, NativeEpochs
from reverie.config.schema import PPOConfig
from reverie.envs.form import ActionForm
from reverie.nn.conv import Trunk
from reverie.nn.native import program
from reverie.nn.native.convolved import Convolved
from reverie.nn.native.machine import NoCompiler
from small_ppo import ACTIONS, HYBRID, IMAGE, SMALL, VECTOR, agent_of, rollout_of, weights

pytestmark = pytest.mark.usefixtures("c_compiler")

CLASSES = spaces.Dict({"door": spaces.Discrete(3), "keys": spaces.MultiDiscrete([2, 4])})
BOTH = spaces.Dict({"move": ACTIONS[0], "aim": ACTIONS[2]})
BUSY = replace(SMALL, entropy=0.02, epochs=3, clip=0.05)


def pair(config, action=ACTIONS[0], observation=VECTOR):
    """Two agents alike, the second of which has programs."""
    return [agent_of(observation, action, config, fast=fast) for fast in ("off", "auto")]


def assert_learn_alike(agents, rows) -> None:
    """What both agents learn from rows is the same."""
    agents[1].generator.set_state(agents[0].generator.get_state())
    plain, native = [agent.learn_rollout(rows) for agent in agents]
    assert plain.updates == native.updates
    for name, value in plain.metrics.items():
        torch.testing.assert_close(native.metrics[name], value, rtol=1e-3, atol=1e-4, equal_nan=True, msg=name)
    torch.testing.assert_close(weights(agents[1]), weights(agents[0]), rtol=1e-4, atol=1e-4)


def assert_alike(agents, rows) -> None:
    """The same, by programs for whole epochs."""
    assert_learn_alike(agents, rows)
    assert isinstance(agents[1].epochs, NativeEpochs) and agents[0].epochs == agents[0]._epochs


def assert_go_on_alike(config: PPOConfig, action=ACTIONS[0], observation=VECTOR) -> None:
    """Rollouts of both agents are the same, and so is what they learn from them, again and again."""
    agents = pair(config, action, observation)
    for progress in (0.0, 0.3, 0.6):
        one, two = (rollout_of(agent, observation, seed=int(10 * progress)) for agent in agents)
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-4, msg=name)
        for agent in agents:
            agent.schedule(progress)
        assert_alike(agents, one)
    assert isinstance(agents[1].acting["train"], NativeActing)


@pytest.mark.parametrize("action", [*ACTIONS, spaces.Discrete(17)], ids=["discrete", "multi", "box", "many"])
@pytest.mark.parametrize("observation", [VECTOR, CLASSES], ids=["vector", "classes"])
def test_every_kind_of_action_and_vector(observation, action, threads):
    assert_go_on_alike(BUSY, action, observation)


@pytest.mark.parametrize(
    "change",
    [
        {"lr_anneal": True},
        {"clip_anneal": True},
        {"clip": 0.01},
        {"value_clip": 0.01},
        {"value_scale": 2.0},
        {"entropy": 0.5},
        {"grad_norm": 0.0},
        {"grad_norm": 0.01},
        {"adam_eps": 1e-2},
        {"minibatch": 64},
        {"minibatch": 23},
        {"normalize_advantage": False},
        {"normalize_observation": True, "normalize_reward": True},
        {"target_kl": 1e-3},
        {"activation": "relu"},
        {"activation": "silu"},
        {"layers": 3, "units": 33},
        {"policy_layers": 0},
        {"policy_layers": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("action", [ACTIONS[0], ACTIONS[2]], ids=["discrete", "box"])
def test_every_option(change, action):
    assert_go_on_alike(replace(BUSY, **change), action)


@pytest.mark.parametrize("action", ACTIONS, ids=["discrete", "multi", "box"])
@pytest.mark.parametrize("key", ["vector", "reward", "logp"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 1e4])
def test_numbers_that_are_not_finite_or_huge(key, value, action):
    agents = pair(replace(BUSY, minibatch=23, value_clip=0.1, normalize_observation=True), action)
    rows = rollout_of(agents[0])
    rows[key][4, 1] = value
    assert_alike(agents, rows)
    assert all(weights(agent).isfinite().all() for agent in agents)


def test_rows_that_count_for_nothing():
    agents = pair(replace(BUSY, minibatch=4))
    rows = rollout_of(agents[0])
    rows["is_last"][2:14] = True
    assert_alike(agents, rows)


def test_a_gradient_worked_out_by_hand():
    """Of one row whose policy is even: a bias gains what the action's advantage says, the others lose it."""
    agent = agent_of(config=replace(SMALL, normalize_advantage=False, value_scale=0.0, grad_norm=0.0))
    rollout_of(agent)  # which makes the programs
    with torch.no_grad():
        agent.net.policy.linear.weight.zero_()
    third = torch.tensor(1 / 3)
    batch = {"vector": torch.ones(1, 4), "is_first": torch.zeros(1, dtype=torch.bool), "action": torch.tensor([1])}
    batch |= {"logp": third.log()[None], "value": torch.zeros(1), "target": torch.zeros(1)}
    batch |= {"advantage": torch.tensor([2.0]), "weight": torch.ones(1)}
    measured = agent.epochs(batch)(torch.tensor([0]), 1)[0]
    gradient = agent.optimizer.views[[name for name, _ in agent.net.named_parameters()].index("policy.linear.bias")]
    torch.testing.assert_close(gradient, -2 * (torch.tensor([0.0, 1.0, 0.0]) - third))
    torch.testing.assert_close(measured[:1], torch.tensor([-2.0]))
    torch.testing.assert_close(measured[2:5], torch.tensor([-third.log(), 0.0, 0.0]))


def test_draws_follow_the_policy():
    agent = agent_of()
    with torch.no_grad():
        agent.net.policy.linear.bias.copy_(torch.tensor([0.1, 0.3, 0.6]).log())
        agent.net.policy.linear.weight.zero_()
    rows = {"vector": torch.zeros(20_000, 4), "is_first": torch.zeros(20_000, dtype=torch.bool)}
    found = agent.act(rows, None, "train")[0]
    shares = torch.bincount(found["action"], minlength=3) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.3, 0.6]), rtol=0, atol=0.015)
    torch.testing.assert_close(found["logp"], torch.tensor([0.1, 0.3, 0.6])[found["action"]].log())


@pytest.mark.parametrize("observation", [IMAGE, HYBRID], ids=["image", "hybrid"])
def test_images_go_through_convolutions_in_c(observation, threads):
    # one epoch: in more, what is rounded otherwise may come to lie on the other side of a ReLU
    config = replace(BUSY, minibatch=23, epochs=1, precision="float32")
    agents = [agent_of(observation, config=config, fast=fast) for fast in ("off", "native")]
    one, two = (rollout_of(agent, observation) for agent in agents)
    torch.testing.assert_close(two["value"], one["value"], rtol=1e-4, atol=1e-4)
    assert_learn_alike(agents, one)
    (trunk,) = agents[1].net.trunks.values()
    assert isinstance(trunk._maps, Convolved)
    other = copy.deepcopy(agents[1])
    other.learn_rollout(one)
    (copied,) = other.net.trunks.values()
    assert copied._maps == MethodType(Trunk._maps, copied) and not torch.equal(weights(other), weights(agents[1]))


@pytest.mark.parametrize(("capability", "native"), [("AVX2", True), ("AVX512", False), ("DEFAULT", False)])
def test_they_do_so_by_themselves_where_that_is_faster(capability, native, monkeypatch):
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
    assert agent_of(IMAGE).native == native
    assert agent_of(VECTOR).native and agent_of(IMAGE, fast="native").native


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"action": ActionForm(BOTH).space}, "actions of one kind"),
        ({"config": replace(SMALL, units=1024)}, "do not fit a cache"),
    ],
    ids=["joint", "large"],
)
def test_what_has_no_program_is_learned_plainly_and_it_is_said(change, why, caplog):
    agent = agent_of(**change)
    with caplog.at_level(logging.INFO, "reverie"):
        agent.learn_rollout(rollout_of(agent))
    assert agent.epochs == agent._epochs and why in caplog.text


@pytest.mark.parametrize("fast", ["off", "graph", "compile", "shared"])
def test_programs_are_made_where_they_are_asked_for(fast):
    agent = agent_of(fast=fast)
    agent.learn_rollout(rollout_of(agent))
    assert agent.epochs == agent._epochs


def test_a_class_built_upon_it_keeps_what_it_does_otherwise():
    class Still(PPO):
        def _update(self, batch):
            return {"measured": torch.ones(len(METRICS) + 1)}

    agent = agent_of(kind=Still)
    before = weights(agent).clone()
    agent.learn_rollout(rollout_of(agent))
    assert torch.equal(weights(agent), before)


def test_whoever_acts_with_weights_that_others_move():
    plain, native = pair(SMALL)
    rollout_of(native)
    for agent in (plain, native):
        agent.generator.manual_seed(0)
        for parameter in agent.net.parameters():
            parameter.data = parameter.data + 0.1
    rows = {"vector": torch.ones(5, 4), "is_first": torch.zeros(5, dtype=torch.bool)}
    one, two = (agent.act(rows, None, "train")[0] for agent in (plain, native))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value)


@pytest.mark.parametrize("wrong", [-1, 3, 10**7])
def test_an_action_that_there_is_not_is_refused(wrong):
    agent = agent_of()
    rows = rollout_of(agent)
    rows["action"][3, 1] = wrong
    with pytest.raises(IndexError, match="an action is none of those"):
        agent.learn_rollout(rows)


def test_rewards_of_another_precision():
    agents = pair(replace(SMALL, minibatch=64))
    rows = rollout_of(agents[0])
    learned = agents[1].learn_rollout(rows | {"reward": rows["reward"].double()}).metrics
    expected = agents[0].learn_rollout(rows).metrics
    torch.testing.assert_close(learned["train/value_loss"].float(), expected["train/value_loss"])


def test_without_a_compiler_it_is_said_and_learned_plainly(monkeypatch, caplog):
    def fail():
        raise NoCompiler("there is no C compiler: install gcc or clang")

    monkeypatch.setattr(program, "machine", fail)
    agent = agent_of()
    with caplog.at_level(logging.WARNING, "reverie"):
        agent.learn_rollout(rollout_of(agent))
    assert agent.epochs == agent._epochs and "no C compiler" in caplog.text


def test_whoever_only_evaluates_waits_for_no_compiler():
    agent = agent_of()
    rows = {"vector": torch.zeros(2, 4), "is_first": torch.zeros(2, dtype=torch.bool)}
    agent.act(rows, None, "eval")
    agent.act(rows, None, "sample")
    assert agent.native
    agent.act(rows, None, "train")
    assert not agent.native


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda agent: pickle.loads(pickle.dumps(agent))])
def test_a_copy_acts_and_learns_by_itself(copied):
    agent = agent_of()
    rows = rollout_of(agent)
    agent.learn_rollout(rows)
    other = copied(agent)
    before = weights(agent).clone()
    other.learn_rollout(rows)
    assert torch.equal(weights(agent), before) and not torch.equal(weights(other), before)
    row = {key: x[0] for key, x in rows.items()}
    agent.generator.set_state(other.generator.get_state())
    found, theirs = other.act(row, None, "train")[0], agent.act(row, None, "train")[0]
    assert not torch.equal(found["value"], theirs["value"])
    torch.testing.assert_close(found["value"], other.net(row)[1])


def test_what_is_restored_goes_on_exactly_though_programs_were_made_before():
    one, two = agent_of(config=BUSY), agent_of(config=BUSY, seed=7)
    for agent in (one, two):
        agent.learn_rollout(rollout_of(agent))
    two.restore(copy.deepcopy(one.save()))
    for agent in (one, two):
        agent.learn_rollout(rollout_of(agent, seed=3))
    assert torch.equal(weights(one), weights(two))
