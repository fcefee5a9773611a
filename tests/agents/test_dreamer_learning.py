"""Dreamer: how it explores, what each loss reaches, and that it goes on as saved."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.dreamer import Dreamer
from reverie.config.errors import UserError
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.envs.joint import Joint

CPU = torch.device("cpu")
OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-2, 2, (2,), np.float32)
OPTIONS = {"world.precision": "float32", "replay.prefill": 0, "optim.model.warmup": 0, "world.cnn": "pool"}
PRESETS = ["dreamer_v3", "dreamer_v3_2023", "dreamer_v2", "dreamer_v1"]
B, T = 2, 9


def agent_of(action=DISCRETE, preset="dreamer_v3", **options):
    torch.manual_seed(0)
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    return Dreamer(OBSERVATION, action, replaced(stacked([preset, "debug"]), OPTIONS | dotted), CPU)


def rows_of(agent, seed=0, count=B, length=T):
    g = torch.Generator().manual_seed(seed)
    rows = {key: torch.zeros(count, length, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    rows |= {"vector": torch.randn(count, length, 3, generator=g), "reward": torch.randn(count, length, generator=g)}
    latent, width = agent.world.rssm.latent, agent.world.config.deter
    stoch = latent.sample(latent.params(torch.zeros(count, length, latent.outputs)), latent.noise((count, length), g))
    action = agent.code.random(count * length, g)
    rows |= {"stoch": latent.pack(stoch), "deter": torch.randn(count, length, width, generator=g).tanh().bfloat16()}
    return rows | {"action": action.reshape(count, length, *action.shape[1:])}


def row_of(count):
    row = {key: torch.zeros(count, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    return row | {"vector": torch.zeros(count, 3), "reward": torch.zeros(count)}


def actions_of(agent, mode="train", count=4000):
    return agent.act(row_of(count), agent.initial_carry(count), mode)[0]["action"]


def decided(agent, *outputs):
    """The agent with a policy that has these outputs whatever it sees."""
    with torch.no_grad():
        agent.behavior.actor[-1].weight.zero_()
        agent.behavior.actor[-1].bias.copy_(torch.tensor(outputs))
    return agent


def frequencies(action):
    return torch.bincount(action, minlength=3) / len(action)


def test_actions_are_random_until_the_prefill_is_over():
    agent = decided(agent_of(replay__prefill=5000), 0.0, 50.0, 0.0)
    torch.testing.assert_close(frequencies(actions_of(agent)), torch.full((3,), 1 / 3), atol=0.03, rtol=0)
    later = frequencies(actions_of(agent))
    assert later[1] > 0.98  # all but the uniform share
    box = decided(agent_of(BOX, replay__prefill=5000), 9.0, 9.0, -9.0, -9.0)
    action = actions_of(box)
    assert action.min() < -1.95 and action.max() > 1.95 and action.mean().abs() < 0.1
    assert (actions_of(box).clamp(-2, 2) > 1.0).all()


def test_evaluation_neither_counts_as_prefill_nor_explores():
    agent = decided(agent_of(replay__prefill=5000, behavior__epsilon=1.0), 0.0, 50.0, 0.0)
    for mode in ("eval", "sample"):
        found = actions_of(agent, mode)
        assert frequencies(found)[1] > 0.98 and (mode == "sample" or (found == 1).all())
    assert agent.acted == 0
    added, _ = agent.act(row_of(3), agent.initial_carry(3), "eval")
    assert added["value"].shape == (3,) and "deter" not in added


def test_random_choices_by_chance():
    agent = decided(agent_of(behavior__epsilon=0.3, behavior__unimix=0.0), 0.0, 50.0, 0.0)
    torch.testing.assert_close(frequencies(actions_of(agent)), torch.tensor([0.1, 0.8, 0.1]), atol=0.03, rtol=0)


def test_noise_on_continuous_actions():
    for noise in (0.0, 0.3):
        agent = decided(agent_of(BOX, behavior__noise=noise, behavior__min_std=0.01), 0.0, 0.0, -20.0, -20.0)
        found = actions_of(agent)
        deviation = 2 * np.hypot(noise, 0.01)  # of numbers between -2 and 2
        assert found.std().item() == pytest.approx(deviation, rel=0.05)
        assert found.abs().max() <= 2


def test_noise_on_numbers_and_random_choices_in_actions_of_both():
    both = Joint({"go": spaces.Box(-2, 2, (1,), np.float32), "pick": DISCRETE})
    options = {"behavior__noise": 0.3, "behavior__epsilon": 0.3, "behavior__unimix": 0.0, "behavior__min_std": 0.01}
    found = actions_of(decided(agent_of(both, **options), 0.0, -20.0, 0.0, 50.0, 0.0))
    picked = frequencies(found[:, both.slices["pick"]].flatten().long())
    torch.testing.assert_close(picked, torch.tensor([0.1, 0.8, 0.1]), atol=0.03, rtol=0)
    assert found[:, both.slices["go"]].std().item() == pytest.approx(2 * np.hypot(0.3, 0.01), rel=0.05)


@pytest.mark.parametrize("options", [{"behavior__epsilon": 1.0}, {"replay__prefill": 100}])
def test_what_was_done_is_remembered_as_it_was_stored(options):
    agent = agent_of(**options)
    added, carry = agent.act(row_of(50), agent.initial_carry(50), "train")
    assert torch.equal(carry["action"].argmax(-1), added["action"])
    assert torch.equal(carry["deter"].bfloat16(), added["deter"]) and added["stoch"].dtype == torch.uint8


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("space", [DISCRETE, BOX])
def test_every_weight_learns_and_every_optimiser_has_its_own(preset, space):
    still = {f"optim__{name}__{option}": 0 for name in ("model", "actor", "critic") for option in ("warmup", "decay")}
    agent = agent_of(space, preset, world__free_nats=0.0, **still)
    before = {name: value.clone() for name, value in agent.named_parameters()}
    held = [id(parameter) for stepper in agent.steppers.values() for parameter in stepper.parameters]
    wanted = {id(parameter) for parameter in agent.parameters() if parameter.requires_grad}
    assert len(held) == len(set(held)) and set(held) == wanted
    for seed in range(3):
        metrics = agent.learn_replay(rows_of(agent, seed)).metrics
    unmoved = [name for name, value in agent.named_parameters() if torch.equal(value, before[name])]
    assert all(name.startswith("behavior.slow") for name in unmoved), unmoved
    assert all(value.isfinite().all() for value in metrics.values())
    assert ("train/replay_critic_loss" in metrics) == (preset == "dreamer_v3") and "train/real_value" in metrics
    assert set(agent.steppers) == ({"model"} if preset == "dreamer_v3" else {"model", "actor", "critic"})


@pytest.mark.parametrize("name", ["model", "actor", "critic"])
@pytest.mark.parametrize("preset", ["dreamer_v1", "dreamer_v2", "dreamer_v3_2023"])
def test_each_optimiser_moves_its_own_part_at_its_own_rate(preset, name):
    rates = {f"optim__{each}__lr": 1e-3 if each == name else 0.0 for each in ("model", "actor", "critic")}
    still = {f"optim__{each}__{option}": 0 for each in ("model", "actor", "critic") for option in ("warmup", "decay")}
    agent = agent_of(DISCRETE, preset, world__free_nats=0.0, **still, **rates)
    parts = {"model": agent.world, "actor": agent.behavior.actor, "critic": agent.behavior.critic}
    before = {each: [value.clone() for value in part.parameters()] for each, part in parts.items()}
    agent.learn_replay(rows_of(agent))
    for each, part in parts.items():
        moved = [not torch.equal(*pair) for pair in zip(part.parameters(), before[each])]
        assert any(moved) == (each == name), each


def losses_of(agent, rows):
    """All losses of rows and the states they come from, still differentiable."""
    window = agent.window(rows)
    seen = agent.world.observe(window, agent.generator)
    predicted, _ = agent.world.predictions(seen, window, agent.generator)
    return predicted | behaved(agent, seen, window), seen.state


def behaved(agent, seen, window):
    """The losses of actor and critic."""
    (losses, _), later = agent._behave(seen.state, window)
    return losses | later()[0]


def reached(loss, modules):
    """Which modules a loss has a gradient in."""
    found = {}
    for name, module in modules.items():
        gradients = torch.autograd.grad(loss.mean(), list(module.parameters()), retain_graph=True, allow_unused=True)
        found[name] = any(each is not None and each.abs().sum() > 0 for each in gradients)
    return found


def test_which_loss_reaches_what():
    """Only the critic's loss on replayed rows reaches from the behaviour into the world model."""
    agent = agent_of()
    for seed in range(3):  # heads that begin at zero pass nothing on
        agent.learn_replay(rows_of(agent, seed))
    modules = {"encoder": agent.world.encoder, "rssm": agent.world.rssm, "reward": agent.world.reward_head,
               "actor": agent.behavior.actor, "critic": agent.behavior.critic}  # fmt: skip
    losses, _ = losses_of(agent, rows_of(agent))
    expected = {
        "actor": {"actor"}, "critic": {"critic"}, "replay_critic": {"critic", "encoder", "rssm"},
        "reward": {"reward", "encoder", "rssm"}, "vector": {"encoder", "rssm"}, "rep": {"encoder", "rssm"},
    }  # fmt: skip
    for name, wanted in expected.items():
        assert {key for key, found in reached(losses[name], modules).items() if found} == wanted, name


def test_losses_are_means_over_all_rows_and_weighted_as_configured():
    agent = agent_of(behavior__replay_scale=0.3)
    other = copy.deepcopy(agent)
    other.behavior.config = replaced(stacked(["dreamer_v3", "debug"]), {"behavior.replay_scale": 0.6}).behavior
    rows = rows_of(agent)
    first, second = (losses_of(each, rows)[0] for each in (agent, clone_generator(agent, other)))
    torch.testing.assert_close(first["replay_critic"] * 2, second["replay_critic"])
    assert first["replay_critic"].shape == (B, T - 2) and first["vector"].shape == (B, T - 1)
    assert first["actor"].shape == first["critic"].shape == (4, B * (T - 1))  # from every replayed state


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("space", [DISCRETE, BOX])
def test_gradients_taken_in_parts_are_those_of_all_losses_at_once(preset, space):
    agent = agent_of(space, preset)
    rows = rows_of(agent)
    weights = {name: weight for name, weight in agent.named_parameters() if weight.requires_grad}
    window = agent.window(rows)
    agent.generator.manual_seed(0)
    seen = agent.world.observe(window, agent.generator)
    losses = behaved(agent, seen, window) | agent.world.predictions(seen, window, agent.generator)[0]
    total = sum(loss.mean() for loss in losses.values())
    expected = dict(zip(weights, torch.autograd.grad(total, list(weights.values()), allow_unused=True)))
    for stepper in agent.steppers.values():
        stepper.zero()
    agent.generator.manual_seed(0)
    agent._differentiate(agent.window(rows), agent.lessons["all"])
    for name, weight in weights.items():
        torch.testing.assert_close(weight.grad, expected[name], rtol=1e-4, atol=1e-6, msg=name)


def clone_generator(agent, other):
    agent.generator.manual_seed(0)
    other.generator = torch.Generator().manual_seed(0)
    return other


def test_boots_are_the_imagined_returns_of_the_same_rows():
    agent = agent_of()
    returns = torch.arange(B * (T - 1)).float()
    taken = []
    agent.behavior.returned = lambda dream: torch.stack([returns + 1000 * t for t in range(len(dream.reward) - 1)])
    agent.behavior.replay_loss = lambda state, rows, boot, gamma: taken.append((state, boot)) or (boot, boot)
    losses_of(agent, rows_of(agent))
    state, boot = taken[0]
    assert torch.equal(boot, returns.reshape(B, T - 1))
    assert state.deter.requires_grad


def test_the_slow_critic_follows_what_the_critic_has_become():
    agent = agent_of(behavior__slow_rate=1.0)
    critic, slow = (list(each.parameters()) for each in (agent.behavior.critic, agent.behavior.slow))
    before = [weight.clone() for weight in critic]
    agent.learn_replay(rows_of(agent))
    assert not all(map(torch.equal, critic, before)) and all(map(torch.equal, critic, slow))


def test_dreams_may_start_from_the_last_rows_alone():
    agent = agent_of(behavior__starts=3)
    starts = []
    learned = agent.behavior.foreseen
    agent.behavior.foreseen = lambda world, start, *more: starts.append(start) or learned(world, start, *more)
    losses, state = losses_of(agent, rows_of(agent))
    assert torch.equal(starts[0].deter, state.deter[:, -3:].flatten(0, 1))
    assert losses["actor"].shape == (4, B * 3) and losses["replay_critic"].shape == (B, 2)
    assert losses["vector"].shape == losses["dyn"].shape == (B, T - 1)  # the model learns from all


def test_dreams_too_short_to_learn_from_are_refused():
    with pytest.raises(UserError, match=r"--behavior.horizon 1 leaves dreams nothing"):
        agent_of(preset="dreamer_v1", behavior__horizon=1)
    metrics = (agent := agent_of(behavior__horizon=1)).learn_replay(rows_of(agent)).metrics
    assert metrics["train/skipped"] == 0


def test_learning_rates_fall_over_a_run():
    agent = agent_of(optim__lr_end=0.1)
    for progress, share in ((0.0, 1.0), (0.5, 0.55), (1.0, 0.1)):
        agent.schedule(progress)
        assert agent.steppers["model"].share == pytest.approx(share)


def test_saved_and_restored_it_goes_on_the_same():
    agent, other = agent_of(replay__start="carried"), agent_of(replay__start="carried")
    rows = rows_of(agent) | {"continues": torch.tensor([True, False])}
    for _ in range(2):
        agent.learn_replay(rows)
        actions_of(agent, count=3)
    other.restore(copy.deepcopy(agent.save()))
    for each in (agent, other):
        each.learn_replay(rows)
    for (name, left), right in zip(agent.state_dict().items(), other.state_dict().values()):
        assert torch.equal(left, right), name
    assert agent.acted == other.acted and agent.behavior.range.high != 0
    assert torch.equal(actions_of(agent), actions_of(other))


def test_half_precision_learns_with_losses_in_full():
    agent = agent_of(world__precision="bfloat16")
    rows = rows_of(agent)
    for seed in range(2):
        agent.learn_replay(rows_of(agent, seed))
    with torch.autocast("cpu", torch.bfloat16):
        losses, _ = losses_of(agent, rows)
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    sum(loss.mean() for loss in losses.values()).backward()
    for name, parameter in agent.named_parameters():
        assert not parameter.requires_grad or parameter.grad.abs().sum() > 0, name
    _, carry = agent.act(row_of(3), agent.initial_carry(3), "train")
    assert carry["deter"].dtype == carry["stoch"].dtype == torch.float32
