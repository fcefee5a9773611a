"""Plan2Explore: who acts when, which lesson teaches whom, and that rewards stay unknown where they are to be."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.plan2explore import Plan2Explore
from reverie.config.options import replaced
from reverie.config.presets import stacked

CPU = torch.device("cpu")
OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-2, 2, (2,), np.float32)
OPTIONS = {
    "world.precision": "float32", "replay.prefill": 0, "optim.model.warmup": 0, "world.bins": 15, "explore.fit": 0,
    "run.steps": 100, "run.fast": "off",
}  # fmt: skip
N, T = 2, 9


def agent_of(action=DISCRETE, preset="dreamer_v3", explore="plan2explore", **options):
    torch.manual_seed(0)
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    return Plan2Explore(OBSERVATION, action, replaced(stacked([preset, explore, "debug"]), OPTIONS | dotted), CPU)


def rows_of(agent, seed=0):
    """Rows (N, T) the agent has acted upon, with an end and a beginning in the middle."""
    rng = np.random.default_rng(seed)
    rows = {
        "vector": torch.from_numpy(rng.normal(size=(N, T, 3)).astype(np.float32)),
        "reward": torch.from_numpy(rng.normal(size=(N, T)).astype(np.float32)),
    }
    rows |= {key: torch.zeros(N, T, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    rows["is_last"][0, 3] = rows["is_terminal"][0, 3] = rows["is_first"][0, 4] = True
    carry, columns = agent.initial_carry(N), []
    for t in range(T):
        added, carry = agent.act({key: x[:, t] for key, x in rows.items()}, carry, "train")
        columns.append(added)
    return rows | {key: torch.stack([column[key] for column in columns], 1) for key in columns[0]}


def weights(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def changed(module, before):
    return {name for name, value in module.state_dict().items() if not torch.equal(value, before[name])}


@pytest.mark.parametrize("preset", ["dreamer_v1", "dreamer_v2", "dreamer_v3_2023", "dreamer_v3"])
@pytest.mark.parametrize("space", [DISCRETE, BOX])
@pytest.mark.parametrize("target", ["embed", "stoch"])
def test_every_generation_explores(preset, space, target):
    agent = agent_of(space, preset, explore__target=target, explore__extrinsic=0.5)
    rows, before = rows_of(agent), weights(agent)
    metrics = agent.learn_replay(rows).metrics
    assert all(torch.isfinite(value) for value in metrics.values())
    moved = changed(agent, before)
    for part in ("world.rssm", "world.reward_head", "behavior.actor", "behavior.critic", "explorer.actor",
                 "explorer.critic", "explorer.ensemble", "explorer.usual"):  # fmt: skip
        assert any(name.startswith(part) for name in moved), part


def test_both_behaviours_are_told_apart_by_their_names():
    agent = agent_of()
    metrics = agent.learn_replay(rows_of(agent)).metrics
    for name in ("actor_loss", "critic_loss", "entropy", "imagined_reward", "imagined_return", "return_range"):
        assert metrics[f"train/{name}"] != metrics[f"explore/{name}"] or name == "return_range"
    assert {"explore/ensemble_loss", "explore/disagreement", "explore/imagined_disagreement"} <= set(metrics)
    assert metrics["explore/disagreement"] > 0


@pytest.mark.parametrize("preset", ["dreamer_v2", "dreamer_v3"])
def test_every_weight_has_one_optimiser(preset):
    agent = agent_of(preset=preset)
    held = [id(parameter) for stepper in agent.steppers.values() for parameter in stepper.parameters]
    assert len(held) == len(set(held))
    assert set(held) == {id(parameter) for parameter in agent.parameters() if parameter.requires_grad}


def test_the_losses_of_one_behaviour_do_not_teach_the_other():
    heads = {"world__reward_head": "normal", "behavior__critic_head": "normal"}  # two-hot ones begin at zero
    agent = agent_of(behavior__entropy=0.0, behavior__actor_scale=1.0, **heads)
    window = agent.window(rows_of(agent))
    seen = agent.world.observe(window, agent.generator)
    for own, other, prefix in ((agent.explorer, agent.behavior, "explore/"), (agent.behavior, agent.explorer, "")):
        agent.zero_grad()
        (losses, _), later = agent.lessons["explore"].behave(seen, window)
        losses = losses | later()[0]
        (losses[f"{prefix}actor"].mean() + losses[f"{prefix}critic"].mean()).backward()
        assert any(p.grad is not None and p.grad.any() for p in own.actor.parameters())
        assert not any(p.grad is not None and p.grad.any() for p in other.parameters())
        assert not any(p.grad is not None and p.grad.any() for p in agent.world.parameters())


def test_exploring_alone_leaves_world_and_task_as_an_agent_without_it_would():
    """The explorer decides what is collected; it does not bend what is learned from it."""
    found = []
    for intrinsic in (1.0, 50.0):
        agent = agent_of(explore__intrinsic=intrinsic)
        agent.learn_replay(rows_of(agent))
        found.append(weights(agent))
    assert changed(agent.world, {name[6:]: x for name, x in found[0].items() if name.startswith("world.")}) == set()
    task = {name[9:]: x for name, x in found[0].items() if name.startswith("behavior.")}
    assert changed(agent.behavior, task) == set()
    assert any(not torch.equal(found[0][name], found[1][name]) for name in found[0] if "explorer.critic" in name)


@pytest.mark.parametrize("preset", ["dreamer_v1", "dreamer_v3"])
@pytest.mark.parametrize("options", [{}, {"world__overshoot": 2}, {"replay__prioritised": 1.0}])
def test_without_the_task_rewards_reach_nothing(preset, options):
    """Nor do they where the reward head's gradient would reach the features, or windows be drawn by its loss."""
    found, written = [], []
    for reward in (0.0, 7.0):
        agent = agent_of(preset=preset, explore="zero_shot", **options)
        rows = rows_of(agent) | {"reward": torch.full((N, T), reward)}
        for _ in range(2):
            learned = agent.learn_replay(rows)
        found.append(weights(agent))
        written.append(learned)
        assert not any("reward" in name for name in learned.metrics if name != "explore/imagined_reward")
    assert changed(agent, found[0]) == set()
    assert all(torch.equal(written[0].writeback[name], written[1].writeback[name]) for name in learned.writeback)


def test_with_the_task_they_do():
    found = []
    for reward in (0.0, 7.0):
        agent = agent_of()
        rows = rows_of(agent) | {"reward": torch.full((N, T), reward)}
        for _ in range(2):  # two-hot heads begin at zero and pass nothing on at first
            agent.learn_replay(rows)
        found.append(weights(agent))
    moved = changed(agent, found[0])
    assert any(name.startswith("world.rssm") for name in moved)


@pytest.mark.parametrize("preset", ["dreamer_v1", "dreamer_v2", "dreamer_v3"])
def test_fitting_teaches_the_task_and_nothing_else(preset):
    agent = agent_of(preset=preset, explore="zero_shot", explore__fit=3)
    rows = rows_of(agent)
    for _ in range(3):
        agent.learn_replay(rows)  # so that optimisers have averages that could go on moving weights
    agent.schedule(1.0)
    assert agent.lesson == "fit" and agent.owed == 3
    before = weights(agent)
    metrics = agent.learn_replay(rows).metrics
    moved = changed(agent, before)
    assert {name.partition(".")[0] for name in moved} == {"world", "behavior"}
    assert all(name.startswith("world.reward_head.") for name in moved if name.startswith("world."))
    assert any(name.startswith("world.reward_head.") for name in moved)
    assert metrics["world/reward_loss"] > 0 and agent.owed == 2
    for _ in range(2):
        agent.learn_replay(rows)
    assert agent.owed == 0 and agent.lesson == "exploit"


def test_when_exploring_is_over_the_explorer_learns_no_more():
    agent = agent_of(explore__until=40)
    rows = rows_of(agent)
    agent.schedule(0.39)
    assert agent.lesson == "explore"
    agent.learn_replay(rows)
    agent.schedule(0.4)
    assert agent.lesson == "exploit"
    before = weights(agent)
    metrics = agent.learn_replay(rows).metrics
    moved = changed(agent, before)
    assert not any(name.startswith("explorer.") for name in moved)
    assert any(name.startswith("world.rssm") for name in moved) and any(name.startswith("behavior.") for name in moved)
    assert not any(name.startswith("explore/") for name in metrics)


@pytest.mark.parametrize(
    ("until", "progress", "show", "expected"),
    [
        (0, 0.0, False, ("explorer", "task")),
        (0, 0.99, False, ("explorer", "task")),
        (50, 0.49, False, ("explorer", "task")),
        (50, 0.5, False, ("task", "task")),
        (500, 0.99, False, ("explorer", "task")),  # later than the budget goes
        (50, 0.9, True, ("task", "explorer")),
    ],
)
def test_who_acts(until, progress, show, expected):
    agent = agent_of(explore__until=until, explore__show=show)
    for action, name in enumerate(agent.policies):
        with torch.no_grad():
            agent.policies[name].actor[-1].bias.copy_(torch.eye(3)[action] * 50)
    agent.schedule(progress)
    rows = {"vector": torch.zeros(200, 3), "reward": torch.zeros(200)}
    rows |= {key: torch.zeros(200, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    names = list(agent.policies)
    for modes, name in ((("train",), expected[0]), (("sample", "eval"), expected[1])):
        for mode in modes:
            action = agent.act(rows, agent.initial_carry(200), mode)[0]["action"].flatten()
            assert (action == names.index(name)).float().mean() > 0.9  # what is left is the uniform share


def test_exploring_again_makes_the_fit_due_again():
    agent = agent_of(explore="zero_shot", explore__fit=2)
    rows = rows_of(agent)
    agent.schedule(1.0)
    for _ in range(2):
        agent.learn_replay(rows)
    assert agent.owed == 0
    agent.schedule(0.5)  # resumed with a larger budget
    assert agent.lesson == "explore" and agent.owed == 0
    agent.schedule(1.0)
    assert agent.owed == 2


def test_what_is_learned_late_has_its_whole_learning_rate():
    agent = agent_of(explore="zero_shot", explore__fit=2, optim__lr_end=0.1)
    agent.schedule(0.5)
    assert agent.steppers["task"].share == pytest.approx(0.55)
    agent.schedule(1.0)
    assert agent.steppers["task"].share == 1.0 and agent.steppers["model"].share == pytest.approx(0.1)


def test_generators_get_the_weights_of_both_and_stop_exploring_by_what_they_acted_upon():
    agent, copy = agent_of(explore__until=50), agent_of(explore__until=50)
    agent.learn_replay(rows_of(agent))
    for taken, given in zip(copy.published(), agent.published()):
        taken.data.copy_(given)
    for part in ("behavior.actor", "explorer.actor", "world.rssm"):
        left, right = (each.get_submodule(part).state_dict() for each in (agent, copy))
        assert all(torch.equal(left[name], right[name]) for name in left)
    copy.acted = 49
    assert copy.actor("train") == "explorer"
    copy.acted = 50
    assert copy.actor("train") == "task"
