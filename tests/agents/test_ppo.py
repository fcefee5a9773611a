"""PPO: each option changes what is learned, and nothing leaks where it must not."""

import copy
from dataclasses import replace

import pytest
import torch
from gymnasium import spaces

from reverie.agents.ppo import METRICS
from small_ppo import ACTIONS, HYBRID, IMAGE, SMALL, VECTOR, agent_of, rollout_of, weights


def learned(config, rows=None, change=None, seed=0):
    """The weights after one round of learning."""
    agent = agent_of(config=config, seed=seed)
    rows = rollout_of(agent) if rows is None else {key: x.clone() for key, x in rows.items()}
    if change:
        change(rows)
    agent.schedule(0.5)
    agent.learn_rollout(rows)
    return weights(agent)


@pytest.mark.parametrize("action", ACTIONS, ids=["discrete", "multi", "box"])
@pytest.mark.parametrize("observation", [VECTOR, IMAGE, HYBRID], ids=["vector", "image", "hybrid"])
def test_acts_and_learns_on_every_kind_of_space(observation, action):
    agent = agent_of(observation, action)
    before = weights(agent).clone()
    result = agent.learn_rollout(rollout_of(agent, observation))
    assert {f"train/{name}" for name in METRICS} <= set(result.metrics)
    assert all(torch.isfinite(value) for value in result.metrics.values())
    assert result.updates == 2 * 4
    assert (weights(agent) != before).float().mean() > 0.5


def test_bits_are_classes_as_they_are_to_a_world_model():
    space = spaces.Dict({"vector": VECTOR["vector"], "lamps": spaces.MultiBinary(2)})
    net = agent_of(space, config=replace(SMALL, normalize_observation=True)).net
    rows = {"vector": torch.zeros(1, 4), "lamps": torch.tensor([[1, 0]]), "is_first": torch.zeros(1, dtype=torch.bool)}
    assert net.vectors(rows)[0, -4:].tolist() == [0.0, 1.0, 1.0, 0.0] and net.vectors.size == 8


def test_an_image_and_a_vector_act_together_and_not_only_side_by_side():
    agent = agent_of(HYBRID)
    rows = {key: x[0, :2] for key, x in rollout_of(agent, HYBRID).items()}
    other = rows | {"vector": rows["vector"].flip(0)}
    values = torch.stack([agent.net(each)[1] for each in (rows, other)])
    mixed = values[0, 0] - values[1, 0] + values[0, 1] - values[1, 1]  # 0 if the parts only added up
    assert mixed.abs() > 1e-4


def test_the_first_ratio_is_one():
    agent = agent_of(config=replace(SMALL, epochs=1, minibatch=64))
    metrics = agent.learn_rollout(rollout_of(agent)).metrics
    assert metrics["train/approx_kl"].item() == pytest.approx(0, abs=1e-6)
    assert metrics["train/clip_fraction"].item() == 0


def test_the_action_of_a_last_row_is_not_learned():
    def other_action(rows):
        rows["action"][5, 1] = (rows["action"][5, 1] + 1) % 3
        rows["logp"][5, 1] -= 1.0

    torch.testing.assert_close(learned(SMALL), learned(SMALL, change=other_action), rtol=0, atol=0)


def test_a_timeout_and_an_end_differ():
    def timeout(rows):
        rows["is_terminal"][5, 1] = False

    assert not torch.equal(learned(SMALL), learned(SMALL, change=timeout))


def test_the_next_episode_does_not_reach_back():
    def richer(rows):
        rows["reward"][7:, 1] += 5.0

    agent = agent_of()
    rows = rollout_of(agent)
    plain, changed = agent._targets(rows), copy.deepcopy(rows)
    richer(changed)
    difference = (agent._targets(changed)["target"] - plain["target"]).reshape(16, 4)
    assert (difference[:5] == 0).all()  # row 5 is the last one: its own target is never used
    assert (difference[6:, 1] != 0).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 1e-3),
        ("lr_anneal", True),
        ("gamma", 0.5),
        ("lam", 0.1),
        ("clip", 0.01),
        ("clip_anneal", True),
        ("value_clip", 0.01),
        ("value_scale", 0.1),
        ("entropy", 0.1),
        ("grad_norm", 0.1),
        ("adam_eps", 1e-2),
        ("epochs", 3),
        ("minibatch", 32),
        ("normalize_advantage", False),
        ("normalize_reward", True),
        ("activation", "relu"),
        ("policy_layers", 1),
    ],
)
def test_every_option_changes_what_is_learned(name, value):
    base = replace(SMALL, epochs=4, clip=0.05)
    rows = rollout_of(agent_of(config=base))
    assert not torch.equal(learned(base, rows), learned(replace(base, **{name: value}), rows))


def test_a_linear_policy_answers_in_proportion_and_its_critic_does_not():
    net = agent_of(config=replace(SMALL, policy_layers=0)).net
    one, two = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    rows = {"vector": torch.stack([one, two, one + two, torch.zeros(4)]), "is_first": torch.zeros(4, dtype=torch.bool)}
    policy, value = net(rows)
    shares = policy.log_probs - policy.log_probs[:, :1]
    assert shares[:2].abs().max() > 1e-3
    torch.testing.assert_close(shares[0] + shares[1], shares[2] + shares[3])
    assert (value[0] + value[1] - value[2] - value[3]).abs() > 1e-3


def test_a_policy_beside_images_keeps_its_layers():
    plain, linear = (agent_of(HYBRID, config=replace(SMALL, policy_layers=layers)).net for layers in (None, 0))
    assert [p.shape for p in plain.parameters()] == [p.shape for p in linear.parameters()]


def test_what_changes_over_a_run_may_be_a_tensor_as_gpu_graphs_need_it():
    base = replace(SMALL, lr_anneal=True, clip_anneal=True, clip=0.05, epochs=4)
    plain, graphed = agent_of(config=base), agent_of(config=base)
    graphed.clip, graphed.optimizer.lr = torch.tensor(base.clip), torch.tensor(base.lr)
    rows = rollout_of(agent_of(config=base))
    for agent in (plain, graphed):
        agent.restore(copy.deepcopy(agent.save()))
        agent.schedule(0.5)
        metrics = agent.learn_rollout(rows).metrics
        assert metrics["train/lr"].item() == pytest.approx(base.lr / 2)
        agent.schedule(0.9)
        assert metrics["train/lr"].item() == pytest.approx(base.lr / 2)
        agent.learn_rollout(rows)
    torch.testing.assert_close(weights(plain), weights(graphed))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
def test_graphs_of_a_gpu_act_and_learn_as_plain_code_does(observation):
    base = replace(SMALL, lr_anneal=True, clip_anneal=True, precision="float32", normalize_observation=True)
    plain, graphed = (agent_of(observation, config=base, device=torch.device("cuda"), fast=f) for f in ("off", "auto"))
    for progress in (0.0, 0.2, 0.4, 0.6):
        for agent in (plain, graphed):
            agent.schedule(progress)
            agent.learn_rollout(rollout_of(agent, observation))
    assert graphed.acting["train"].captures and graphed.updating.captures
    assert not graphed.acting["train"].failed and not graphed.updating.failed
    torch.testing.assert_close(weights(plain), weights(graphed), rtol=1e-3, atol=1e-4)


def test_normalised_observations_are_frozen_inside_a_rollout():
    agent = agent_of(config=replace(SMALL, normalize_observation=True, epochs=1, minibatch=64))
    rows = rollout_of(agent)
    rows["vector"] = rows["vector"] * 100 + 50
    rows |= {key: x.clone() for key, x in agent.act(rows, None, "train")[0].items()}
    assert agent.learn_rollout(rows).metrics["train/approx_kl"].item() == pytest.approx(0, abs=1e-6)
    assert agent.net.vectors.norm.count > 60
    assert agent.net.vectors(rows).abs().mean() < 2


def test_target_kl_stops_the_epochs():
    config = replace(SMALL, epochs=50, lr=3e-2, target_kl=0.01)
    agent = agent_of(config=config)
    assert agent.learn_rollout(rollout_of(agent)).updates < 50 * 4


def test_evaluation_takes_the_best_action_and_draws_nothing():
    agent = agent_of()
    rows = {key: x[0] for key, x in rollout_of(agent).items()}
    state = agent.generator.get_state()
    one, two = agent.act(rows, None, "eval")[0], agent.act(rows, None, "eval")[0]
    assert torch.equal(one["action"], two["action"])
    assert torch.equal(agent.generator.get_state(), state)


def test_what_is_saved_goes_on_the_same():
    one = agent_of(config=replace(SMALL, normalize_observation=True, normalize_reward=True))
    rows = rollout_of(one)
    one.learn_rollout(rows)
    two = agent_of(config=one.config, seed=7)
    two.restore(copy.deepcopy(one.save()))
    for agent in (one, two):
        agent.learn_rollout(rollout_of(agent))
    assert torch.equal(weights(one), weights(two))


def test_learns_which_arm_pays():
    agent = agent_of(config=replace(SMALL, epochs=4, gamma=0.0))
    for seed in range(20):
        rows = rollout_of(agent, seed=seed)
        rows["reward"][1:] = (rows["action"][:-1] == 2).float()
        agent.learn_rollout(rows)
    rows = rollout_of(agent, seed=99)
    assert (rows["action"] == 2).float().mean() > 0.9


CAREFUL = replace(SMALL, normalize_observation=True, normalize_reward=True)


def standing(agent):
    """Everything that learning changes, counts and the generator aside."""
    saved = agent.save()
    return saved["module"] | {name: value for name, value in saved["optimizer"].items() if name != "lr"}


@pytest.mark.parametrize("action", [ACTIONS[0], ACTIONS[2]], ids=["discrete", "box"])
@pytest.mark.parametrize("key", ["vector", "reward", "logp"])
def test_a_rollout_that_is_not_finite_changes_nothing_and_is_counted(key, action):
    agent = agent_of(action=action, config=replace(CAREFUL, minibatch=64))
    agent.learn_rollout(rollout_of(agent))
    assert agent.failures() == 0
    rows = rollout_of(agent, seed=1)
    rows[key][4] = torch.nan
    before = copy.deepcopy(standing(agent))
    learned = agent.learn_rollout(rows)
    kept = {name for name, value in standing(agent).items() if torch.equal(value, before[name])}
    moved = {"reward_scale.total"} | {f"reward_scale.stats.{name}" for name in ("mean", "var", "count")}
    moved |= {f"net.vectors.norm.{name}" for name in ("mean", "var", "count")} if key != "vector" else set()
    assert kept >= set(before) - moved
    assert all(value.isfinite().all() for value in standing(agent).values())
    assert agent.failures() == 1 and learned.metrics["train/skipped"] == learned.updates == 2
    again = agent_of(action=action, config=agent.config)
    again.restore(copy.deepcopy(agent.save()))
    assert again.failures() == 1
    learned = again.learn_rollout(rollout_of(again, seed=2))
    assert again.failures() == 0 and learned.metrics["train/skipped"] == 2
    assert all(value.isfinite() for value in learned.metrics.values())


def test_minibatches_that_are_finite_are_learned_from_beside_one_that_is_not():
    agent = agent_of(config=replace(CAREFUL, epochs=1))
    before = weights(agent).clone()
    rows = rollout_of(agent)
    rows["logp"][3, 0] = torch.nan
    metrics = agent.learn_rollout(rows).metrics
    assert metrics["train/skipped"] == 1 and agent.failures() == 1
    assert weights(agent).isfinite().all() and not torch.equal(weights(agent), before)
    assert all(metrics[f"train/{name}"].isfinite() for name in METRICS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_graph_of_a_gpu_leaves_out_what_is_not_finite():
    agent = agent_of(config=replace(SMALL, precision="float32"), device=torch.device("cuda"))
    for seed in range(3):
        agent.learn_rollout(rollout_of(agent, seed=seed))
    assert agent.updating.captures
    rows = rollout_of(agent, seed=9)
    rows["reward"][:] = torch.nan
    before = copy.deepcopy(standing(agent))
    learned = agent.learn_rollout(rows)
    assert all(torch.equal(value, before[name]) for name, value in standing(agent).items())
    assert agent.failures() == 1 and learned.metrics["train/skipped"] == learned.updates
    agent.learn_rollout(rollout_of(agent, seed=10))
    assert agent.failures() == 0 and not torch.equal(standing(agent)["net.value.weight"], before["net.value.weight"])
