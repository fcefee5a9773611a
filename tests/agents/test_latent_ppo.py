"""PPO on a world model's features: old and new policies agree where they must, and each part learns from its own."""

import json

import numpy as np
import pytest
import torch
from gymnasium import spaces

import reverie
from reverie.agents.clipped import OUTPUT_LIMIT
from reverie.agents.dreamer import Dreamer
from reverie.agents.latent_ppo import DreamPPO, LatentPPO
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.world.rssm import State

OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
ACTIONS = {"discrete": spaces.Discrete(3), "continuous": spaces.Box(-3, 1, (2,), np.float32)}
N, T = 3, 8


def agent_of(kind=LatentPPO, action="discrete", preset="dreamer_v3", **options):
    torch.manual_seed(0)
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    base = {
        "ppo.epochs": 1, "ppo.minibatch": 1000, "ppo.rollout": T, "replay.prefill": 0, "optim.model.warmup": 0,
        "behavior.actor_scale": 1.0,
    }  # fmt: skip
    config = replaced(stacked([preset, "debug"]), base | dotted)
    return kind(OBSERVATION, ACTIONS[action], config, torch.device("cpu"))


def rollout_of(agent, seed=0):
    """Rows (T + 1, N) acted upon, the last without action: an end in environment 0, running out of time in 1."""
    rng = np.random.default_rng(seed)
    rows = {
        "vector": torch.from_numpy(rng.normal(size=(T + 1, N, 3)).astype(np.float32)),
        "reward": torch.from_numpy(rng.normal(size=(T + 1, N)).astype(np.float32)),
    }
    rows |= {key: torch.zeros(T + 1, N, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    rows["is_first"][0] = rows["is_last"][3, 0] = rows["is_terminal"][3, 0] = rows["is_first"][4, 0] = True
    rows["is_last"][5, 1] = rows["is_first"][6, 1] = True
    carry, columns = agent.initial_carry(N), []
    for t in range(T):
        added, carry = agent.act({key: x[t] for key, x in rows.items()}, carry, "train")
        columns.append(added)
    columns.append({key: torch.zeros_like(value) for key, value in columns[0].items()})
    return rows | {key: torch.stack([column[key] for column in columns]) for key in columns[0]}


def weights(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def changed(module, before):
    return any(not torch.equal(value, before[name]) for name, value in module.state_dict().items())


def windows_of(agent, rows):
    """The rollout as windows (N, T) of a replay."""
    return {key: x[:-1].transpose(0, 1) for key, x in rows.items() if key not in agent.transient}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("preset", ["dreamer_v1", "dreamer_v2", "dreamer_v3"])
def test_before_the_first_step_the_ratio_is_one(action, preset):
    agent = agent_of(action=action, preset=preset)
    metrics = agent.learn_rollout(rollout_of(agent)).metrics
    assert metrics["train/approx_kl"].item() == pytest.approx(0, abs=1e-6)
    for name in ("clip_fraction", "ratio_clamped", "output_clamped", "ppo_skipped", "logp_reconstructed"):
        assert metrics[f"train/{name}"] == 0, name
    assert metrics["train/actor_grad_norm"] > 0 and metrics["train/critic_grad_norm"] > 0


def test_advantages_are_those_worked_out_by_hand():
    agent = agent_of(ppo__gamma=0.9, ppo__lam=0.5)
    rows = rollout_of(agent)
    state = agent.generator.get_state()
    batch, _ = agent._trajectory(rows)
    agent.generator.set_state(state)
    last = agent._last_value(rows, rows["feature"][T - 1], agent.code.encode(rows["action"][T - 1]))
    value = torch.cat([rows["value"][:T], last.unsqueeze(0)]).double()
    advantage = batch["advantage"].reshape(T, N).double()
    for n in range(N):
        following = 0.0
        for t in reversed(range(T)):
            alive = 0.0 if rows["is_terminal"][t + 1, n] else 0.9
            delta = rows["reward"][t + 1, n].item() + alive * value[t + 1, n].item() - value[t, n].item()
            following = delta + (0.0 if rows["is_last"][t + 1, n] else alive * 0.5 * following)
            assert advantage[t, n].item() == pytest.approx(following, abs=1e-5)
    torch.testing.assert_close(batch["target"], batch["advantage"] + batch["value"])
    assert batch["weight"].reshape(T, N)[3, 0] == 0 and batch["weight"].reshape(T, N)[5, 1] == 0
    assert batch["weight"].sum() == T * N - 2


def test_the_last_value_sees_the_last_row():
    agent = agent_of()
    rows = rollout_of(agent)
    feature, action = rows["feature"][T - 1], agent.code.encode(rows["action"][T - 1])
    torch.nn.init.normal_(agent.behavior.critic.linear.weight)
    values = []
    for shift in (0.0, 3.0):
        agent.generator.manual_seed(0)
        moved = rows | {"vector": rows["vector"] + shift * (torch.arange(T + 1) == T).float()[:, None, None]}
        values.append(agent._last_value(moved, feature, action))
    assert not torch.allclose(*values)


def test_each_part_learns_from_its_own():
    agent = agent_of()
    rows = rollout_of(agent)
    world, actor, critic = (weights(m) for m in (agent.world, agent.behavior.actor, agent.behavior.critic))
    agent.learn_rollout(rows)
    assert not changed(agent.world, world)
    assert changed(agent.behavior.actor, actor) and changed(agent.behavior.critic, critic)
    actor, critic = weights(agent.behavior.actor), weights(agent.behavior.critic)
    metrics = agent.learn_replay(windows_of(agent, rows)).metrics
    assert changed(agent.world, world)
    assert not changed(agent.behavior.actor, actor) and not changed(agent.behavior.critic, critic)
    assert "train/actor_loss" not in metrics and "world/reward_loss" in metrics


def test_missing_log_probabilities_are_rebuilt_and_counted():
    agent = agent_of(ppo__lr=0.0)
    rows = rollout_of(agent)
    full, none = agent._trajectory(rows)
    gone = rows["logp"].clone()
    gone[:2] = torch.nan
    part, share = agent._trajectory(rows | {"logp": gone})
    assert none == 0 and share == pytest.approx(2 / T)
    torch.testing.assert_close(part["logp"], full["logp"], atol=1e-5, rtol=1e-4)  # the policy has not moved since
    without = {key: x for key, x in rows.items() if key != "logp"}
    assert agent.learn_rollout(without).metrics["train/logp_reconstructed"] == 1


def test_random_actions_of_the_beginning_have_no_log_probability():
    agent = agent_of(replay__prefill=2 * N)
    logp = rollout_of(agent)["logp"]
    assert logp[:2].isnan().all() and not logp[2:].isnan().any()


def test_actions_of_last_rows_count_nothing():
    results = []
    for shift in (0, 1):
        agent = agent_of()
        rows = rollout_of(agent)
        action = rows["action"].clone()
        action[3, 0] = (action[3, 0] + shift) % 3
        agent.learn_rollout(rows | {"action": action})
        results.append(weights(agent.behavior.actor))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_numbers_that_run_away_are_held_and_counted():
    agent = agent_of()
    rows = rollout_of(agent)
    far = agent.learn_rollout(rows | {"logp": rows["logp"] - 50}).metrics
    assert far["train/ratio_clamped"] > 0.9 and far["train/clip_fraction"] == pytest.approx(1)
    assert all(torch.isfinite(value) for value in far.values())
    before = weights(agent.behavior)
    broken = rows["reward"].clone()
    broken[2, 1] = torch.nan
    metrics = agent.learn_rollout(rows | {"reward": broken}).metrics
    assert metrics["train/ppo_skipped"] == 1 and not changed(agent.behavior, before)
    with torch.no_grad():
        agent.behavior.actor[-1].weight.mul_(1e6)
    assert agent.learn_rollout(rows).metrics["train/output_clamped"] > 0.5
    assert (
        agent.act({key: x[0] for key, x in rows.items()}, agent.initial_carry(N), "train")[0]["logp"].isfinite().all()
    )


@pytest.mark.parametrize("kind", [LatentPPO, DreamPPO])
def test_a_saved_agent_goes_on_as_if_it_had_not_stopped(kind):
    agent, other = agent_of(kind, ppo__epochs=2, ppo__minibatch=8), agent_of(kind, ppo__epochs=2, ppo__minibatch=8)
    rows = rollout_of(agent)
    agent.learn_rollout(rows)
    agent.learn_replay(windows_of(agent, rows))
    other.restore(agent.save())
    for each in (agent, other):
        each.learn_rollout(rows)
        each.learn_replay(windows_of(each, rows))
    for (name, value), theirs in zip(agent.state_dict().items(), other.state_dict().values()):
        assert torch.equal(value, theirs), name


def test_dreams_teach_the_actor_by_clipped_epochs():
    agent = agent_of(DreamPPO, ppo__epochs=3, ppo__minibatch=20, ppo__lr=1e-2, behavior__horizon=4)
    rows = rollout_of(agent)
    windows = windows_of(agent, rows)
    actor, critic = weights(agent.behavior.actor), weights(agent.behavior.critic)
    torch.nn.init.normal_(agent.world.reward_head.linear.weight)  # a world whose rewards depend on what is done
    metrics = agent.learn_replay(windows).metrics
    assert changed(agent.behavior.actor, actor) and changed(agent.behavior.critic, critic)
    assert metrics["train/approx_kl"] > 0 and metrics["train/imagined_value"].isfinite()
    assert agent.learn_rollout(rows).updates == 0


def test_values_of_real_and_of_dreamt_states_are_told():
    agent = agent_of()
    torch.nn.init.normal_(agent.behavior.critic.linear.weight)
    rows = rollout_of(agent)
    state, before = agent.generator.get_state(), weights(agent)
    value = agent._imagined_value(rows["feature"].flatten(0, 1))
    assert torch.equal(agent.generator.get_state(), state) and not changed(agent, before)
    assert value == agent._imagined_value(rows["feature"].flatten(0, 1)) and value != 0
    metrics = agent.learn_rollout(rows).metrics
    assert metrics["train/real_value"].item() == pytest.approx(rows["value"][:-1].mean().item())
    assert metrics["train/imagined_value"].isfinite() and metrics["train/imagined_value"] != metrics["train/real_value"]


def test_a_broken_world_model_does_not_stop_what_real_rows_teach():
    agent = agent_of()
    rows = rollout_of(agent)
    with torch.no_grad():
        agent.world.rssm.prior_out.weight.fill_(torch.nan)
    metrics = agent.learn_rollout(rows).metrics
    assert metrics["train/ppo_skipped"] == 0 and metrics["train/policy_loss"].isfinite()


def test_a_loss_that_is_not_finite_is_skipped_though_its_gradients_are():
    agent = agent_of()
    rows, loss = rollout_of(agent), agent.behavior.critic.loss
    agent.behavior.critic.loss = lambda feature, target: loss(feature, target) + torch.inf
    before = {name: value.clone() for name, value in agent.behavior.actor.state_dict().items()}
    assert agent.learn_rollout(rows).metrics["train/ppo_skipped"] == 1
    assert all(torch.equal(value, before[name]) for name, value in agent.behavior.actor.state_dict().items())


def test_dreams_begin_at_real_states():
    agent = agent_of(DreamPPO, behavior__horizon=4)
    for critic in (agent.behavior.critic, agent.behavior.judge):
        torch.nn.init.normal_(critic.linear.weight)
    rows = rollout_of(agent)
    start = agent.world.rssm.initial(5)
    start = State(torch.randn(start.deter.shape), start.stoch)
    torch.testing.assert_close(agent._dreamt(start)["value"][:5], agent.behavior.judge.pred(start.feature))
    metrics = agent.learn_replay(windows_of(agent, rows)).metrics
    assert metrics["train/real_value"].isfinite() and metrics["train/real_value"] != metrics["train/imagined_value"]


def test_dreams_that_may_have_ended_weigh_less():
    agent = agent_of(DreamPPO, behavior__horizon=4)
    start = agent.world.rssm.initial(5)
    batch = agent._dreamt(start)
    weight = batch["weight"].reshape(4, 5)
    assert (weight[1:] < weight[:-1]).all() and batch["feature"].shape == (20, agent.world.features)


def test_outputs_are_limited_before_anything_is_made_for_the_policy(monkeypatch):
    seen = []
    monkeypatch.setattr(Dreamer, "_quicken", lambda agent, run: seen.append(agent.behavior.limit))
    agent_of(DreamPPO)
    assert seen == [OUTPUT_LIMIT]


@pytest.mark.parametrize("policy", ["on_policy_ppo", "imagined_ppo"])
def test_whole_runs_learn_and_resume(policy, tmp_path):
    options = {"agent__policy": policy, "logdir": str(tmp_path), "device": "cpu", "run__eval_videos": 0}
    reverie.train(reverie.configure("cartpole", "debug", **options, run__steps=200), quiet=True)
    config = reverie.configure("cartpole", "debug", **options, run__steps=300)
    outcome = reverie.train(config, resume=True, quiet=True)
    lines = [json.loads(line) for line in (outcome.logdir / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] >= 300 and any("train/approx_kl" in line for line in lines)
    learned = [line for line in lines if "train/approx_kl" in line]
    assert all(line[f"train/{kind}_value"] is not None for line in learned for kind in ("real", "imagined"))
