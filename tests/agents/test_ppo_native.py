"""PPO by programs for a CPU: the same actions, gradients and metrics as plain operations."""

import copy
import logging
import pickle
from dataclasses import replace

import pytest
import torch
from gymnasium import spaces

from reverie.agents.ppo_native import NativeActing, NativeEpoch
from reverie.config.schema import PPOConfig
from reverie.nn.native import program
from reverie.nn.native.machine import NoCompiler
from small_ppo import ACTIONS, HYBRID, IMAGE, SMALL, VECTOR, agent_of, rollout_of, weights

pytestmark = pytest.mark.usefixtures("c_compiler")

CLASSES = spaces.Dict({"door": spaces.Discrete(3), "keys": spaces.MultiDiscrete([2, 4])})
BUSY = replace(SMALL, entropy=0.02, epochs=3, clip=0.05)


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def assert_alike(config: PPOConfig, action=ACTIONS[0], observation=VECTOR) -> None:
    """Rollouts of both agents are the same, and so is what they learn from them."""
    plain, native = (agent_of(observation, action, config, fast=fast) for fast in ("off", "auto"))
    for progress in (0.0, 0.3, 0.6):
        one, two = (rollout_of(agent, observation, seed=int(10 * progress)) for agent in (plain, native))
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-4, msg=name)
        found = []
        for agent in (plain, native):
            agent.schedule(progress)
            found.append(agent.learn_rollout(one))
        assert found[0].updates == found[1].updates
        for name, value in found[0].metrics.items():
            torch.testing.assert_close(found[1].metrics[name], value, rtol=1e-3, atol=1e-4, msg=name)
    assert isinstance(native.epoch, NativeEpoch) and isinstance(native.acting["train"], NativeActing)
    assert plain.epoch == plain._epoch
    torch.testing.assert_close(weights(native), weights(plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("action", [*ACTIONS, spaces.Discrete(17)], ids=["discrete", "multi", "box", "many"])
@pytest.mark.parametrize("observation", [VECTOR, CLASSES], ids=["vector", "classes"])
def test_every_kind_of_action_and_vector(observation, action, threads):
    assert_alike(BUSY, action, observation)


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
    ],
    ids=str,
)
@pytest.mark.parametrize("action", [ACTIONS[0], ACTIONS[2]], ids=["discrete", "box"])
def test_every_option(change, action):
    assert_alike(replace(BUSY, **change), action)


def test_a_gradient_worked_out_by_hand():
    """Of one row whose policy is even: a bias gains what the action's advantage says, the other loses it."""
    agent = agent_of(config=replace(SMALL, normalize_advantage=False, value_scale=0.0, grad_norm=0.0))
    agent.act({key: x[0] for key, x in rollout_of(agent).items()}, None, "train")
    with torch.no_grad():
        agent.net.policy.linear.weight.zero_()
    third = torch.tensor(1 / 3)
    batch = {"vector": torch.ones(1, 4), "is_first": torch.zeros(1, dtype=torch.bool), "action": torch.tensor([1])}
    batch |= {"logp": third.log()[None], "value": torch.zeros(1), "target": torch.zeros(1)}
    batch |= {"advantage": torch.tensor([2.0]), "weight": torch.ones(1)}
    measured = agent.epoch(agent.epoch.packed(batch), torch.tensor([0]), 1)[0]
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
def test_images_are_learned_plainly_and_it_is_said(observation, caplog):
    agent = agent_of(observation)
    with caplog.at_level(logging.INFO, "reverie"):
        agent.learn_rollout(rollout_of(agent, observation))
    assert agent.epoch == agent._epoch and "programs for vectors alone" in caplog.text


def test_without_a_compiler_it_is_said_and_learned_plainly(monkeypatch, caplog):
    def fail():
        raise NoCompiler("there is no C compiler: install gcc or clang")

    monkeypatch.setattr(program, "machine", fail)
    agent = agent_of()
    with caplog.at_level(logging.WARNING, "reverie"):
        agent.learn_rollout(rollout_of(agent))
    assert agent.epoch == agent._epoch and "no C compiler" in caplog.text


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
    rollout_of(other)
    assert torch.equal(weights(agent), before) and not torch.equal(weights(other), before)
