"""Dreamer: acting and learning agree, windows begin where they should, and a bad batch does no harm."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.agents.dreamer import Dreamer
from reverie.config.errors import UserError
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.world.rssm import State

CPU = torch.device("cpu")
OBSERVATION = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (3,), np.float32), "door": spaces.Discrete(3)})
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-2, 2, (2,), np.float32)
OPTIONS = {"world.precision": "float32", "replay.prefill": 0, "optim.model.warmup": 0, "world.bins": 15}
N, T = 2, 9


def agent_of(action=DISCRETE, preset="dreamer_v3", **options):
    torch.manual_seed(0)
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    return Dreamer(OBSERVATION, action, replaced(stacked([preset, "debug"]), OPTIONS | dotted), CPU)


def rows_of(agent, length=T, seed=0):
    """Rows (N, T) the agent has acted upon: an end in environment 0, running out of time in environment 1."""
    rng = np.random.default_rng(seed)
    rows = {
        "vector": torch.from_numpy(rng.normal(size=(N, length, 3)).astype(np.float32)),
        "door": torch.from_numpy(rng.integers(0, 3, (N, length))),
        "reward": torch.from_numpy(rng.normal(size=(N, length)).astype(np.float32)),
    }
    rows |= {key: torch.zeros(N, length, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    rows["is_first"][:, 0] = rows["is_last"][0, 3] = rows["is_terminal"][0, 3] = rows["is_first"][0, 4] = True
    rows["is_last"][1, 5] = rows["is_first"][1, 6] = True
    carry, columns = agent.initial_carry(N), []
    for t in range(length):
        added, carry = agent.act({key: x[:, t] for key, x in rows.items()}, carry, "train")
        columns.append(added)
    return rows | {key: torch.stack([column[key] for column in columns], 1) for key in columns[0]}


def weights(agent):
    return {name: value.clone() for name, value in agent.state_dict().items()}


def fixed_noise(agent, length, seed=5):
    """Draws of latents by row, whoever asks for them: a whole window, or one row after the other."""
    latent = agent.world.rssm.latent
    noise = type(latent).noise(latent, (N, length), torch.Generator().manual_seed(seed))
    place = [0]

    def give(shape, generator):
        if len(shape) == 2 and shape[0] == N:
            return noise[:, length - shape[1] :]
        place[0] += 1
        return noise[:, place[0] - 1]

    latent.noise = give


def observed(agent, window):
    with torch.no_grad():
        embed = agent.world.encoder(window.rows)
        return agent.world.rssm.observe(window.start, embed, window.action, window.is_first, agent.generator)[0]


CASES = [
    ("dreamer_v3", DISCRETE),
    ("dreamer_v3", BOX),
    ("dreamer_v3_2023", DISCRETE),
    ("dreamer_v2", BOX),
    ("dreamer_v1", BOX),
]


@pytest.mark.parametrize("preset, space", CASES)
def test_learning_sees_the_states_that_acting_saw(preset, space):
    """Over ends of episodes: the window in one go gives the latents stored one by one."""
    agent = agent_of(space, preset, replay__start="stored", world__cnn="pool")
    fixed_noise(agent, T)
    rows = rows_of(agent)
    agent.replay = replace(agent.replay, start="zeros")  # a window that begins at zeros, as the rows do
    state = observed(agent, agent.window(rows))
    latent = agent.world.rssm.latent
    torch.testing.assert_close(state.deter, rows["deter"].float(), atol=0.01, rtol=0.01)  # stored in half precision
    assert (latent.pack(state.stoch) == rows["stoch"]).float().mean() > 0.99
    # the wrong alignment of actions, or an action not forgotten at a beginning, would not give the same
    shifted = agent.window(rows | {"action": rows["action"].roll(1, 1)})
    assert (observed(agent, shifted).deter - rows["deter"].float()).abs().max() > 0.02


def test_a_window_from_stored_latents_begins_at_its_first_row():
    agent = agent_of(replay__start="stored")
    fixed_noise(agent, T)
    rows = rows_of(agent)
    window = agent.window(rows)
    assert window.is_first.shape == (N, T - 1) and window.rows["reward"].shape == (N, T - 1)
    assert torch.equal(window.start.deter, rows["deter"][:, 0].float())
    classes = window.start.stoch.reshape(N, -1, agent.world.rssm.latent.classes).argmax(-1)
    assert torch.equal(classes, rows["stoch"][:, 0].long())
    for t in range(T - 1):  # the action of a row leads to the next one
        assert torch.equal(window.action[:, t].argmax(-1), rows["action"][:, t])
        assert torch.equal(window.rows["vector"][:, t], rows["vector"][:, t + 1])
        assert torch.equal(window.is_first[:, t], rows["is_first"][:, t + 1])  # nothing forced
    torch.testing.assert_close(observed(agent, window).deter, rows["deter"][:, 1:].float(), atol=0.02, rtol=0.02)


def test_a_window_from_zeros_begins_as_an_episode_does():
    agent = agent_of(replay__start="zeros")
    rows = {key: x[:, 1:] for key, x in rows_of(agent).items()}
    window = agent.window(rows)
    assert window.is_first[:, 0].all() and torch.equal(window.is_first[:, 1:], rows["is_first"][:, 1:])
    assert not rows["is_first"][:, 0].any()  # and the batch is left as it is
    assert window.start.deter.abs().max() == 0 and window.action[:, 0].abs().max() == 0
    assert torch.equal(window.action[:, 1:].argmax(-1), rows["action"][:, :-1])


def test_a_carried_window_goes_on_where_the_last_one_ended():
    agent = agent_of(replay__start="carried")
    rows = rows_of(agent)
    first = {key: x[:, :5] for key, x in rows.items()} | {"continues": torch.tensor([False, False])}
    second = {key: x[:, 5:] for key, x in rows.items()} | {"continues": torch.tensor([False, True])}
    window = agent.window(first)
    assert window.is_first[:, 0].all() and window.start.deter.abs().max() == 0
    agent.learn_replay(first)
    window = agent.window(second | {f"carry/{name}": value for name, value in agent.carried.items()})
    assert window.is_first[:, 0].tolist() == [True, False]
    assert torch.equal(window.action[1, 0].argmax(), rows["action"][1, 4])
    assert torch.equal(window.action[:, 1:].argmax(-1), rows["action"][:, 5:-1])
    assert window.start.deter[1].abs().max() > 0 and not window.start.deter.requires_grad


@pytest.mark.parametrize("start", ["zeros", "carried"])
def test_latents_are_kept_only_where_windows_begin_at_them(start):
    agent = agent_of(replay__start=start, world__cnn="pool")
    rows = rows_of(agent)
    assert "deter" not in rows and "stoch" not in rows
    assert agent.learn_replay(rows | {"continues": torch.zeros(N, dtype=torch.bool)}).writeback == {}


def test_predictions_ahead_must_fit_into_a_window():
    with pytest.raises(UserError, match=r"world\.overshoot"):
        agent_of(world__overshoot=8)


def test_fresh_latents_are_written_over_the_rows_they_are_of():
    agent = agent_of(replay__start="stored")
    rows = rows_of(agent)
    states = []
    observe = agent.world.rssm.observe
    agent.world.rssm.observe = lambda *arguments: states.append(observe(*arguments)) or states[-1]
    written = agent.learn_replay(rows).writeback
    (state, _), latent = states[0], agent.world.rssm.latent
    context = 1
    for key, fresh in (("deter", state.deter.bfloat16()), ("stoch", latent.pack(state.stoch))):
        assert written[key].shape == rows[key].shape and written[key].dtype == rows[key].dtype
        assert torch.equal(written[key][:, :context], rows[key][:, :context])
        assert torch.equal(written[key][:, context:], fresh)


@pytest.mark.parametrize("preset", ["dreamer_v3", "dreamer_v3_2023", "dreamer_v2", "dreamer_v1"])
def test_a_batch_that_is_not_finite_is_skipped(preset):
    agent = agent_of(preset=preset, world__cnn="pool")
    rows = rows_of(agent)
    agent.learn_replay(rows)
    before, states = weights(agent), copy.deepcopy([stepper.state_dict() for stepper in agent.steppers.values()])
    spoiled = rows | {"vector": rows["vector"].clone()}
    spoiled["vector"][1, 4, 0] = torch.nan
    learned = agent.learn_replay(spoiled)
    for name, value in weights(agent).items():
        if name not in ("skipped", "failed"):
            assert torch.equal(value, before[name]), name
    for stepper, state in zip(agent.steppers.values(), states):
        assert all(torch.equal(value, state[name]) for name, value in stepper.state_dict().items())
    for key, value in learned.writeback.items():
        assert torch.equal(value, rows[key]), key
    assert agent.failures() == 1 and learned.metrics["train/skipped"] == 1
    agent.learn_replay(spoiled)
    assert agent.failures() == 2
    learned = agent.learn_replay(rows)
    assert agent.failures() == 0 and learned.metrics["train/skipped"] == 2
    assert all(value.isfinite().all() for value in learned.metrics.values())


def test_a_loss_that_is_not_finite_is_skipped_though_its_gradients_are():
    agent = agent_of()
    predictions = agent.world.predictions

    def endless(*inputs):
        losses, metrics = predictions(*inputs)
        return losses | {"reward": losses["reward"] + torch.inf}, metrics

    agent.world.predictions = endless
    before = weights(agent)
    agent.learn_replay(rows_of(agent))
    assert agent.failures() == 1
    moved = {name for name, value in weights(agent).items() if not torch.equal(value, before[name])}
    assert moved == {"skipped", "failed"}


def test_a_spoiled_window_does_not_spoil_the_one_that_goes_on_from_it():
    agent = agent_of(replay__start="carried")
    rows = rows_of(agent) | {"continues": torch.tensor([True, True])}
    agent.learn_replay(rows)
    spoiled = rows | {"vector": rows["vector"] * torch.nan}
    agent.learn_replay(spoiled)
    rows["is_first"][:, 0] = False
    learned = agent.learn_replay(rows)
    assert agent.failures() == 0 and learned.metrics["train/actor_loss"].isfinite()


def test_a_row_that_is_not_finite_is_forgotten_with_its_episode():
    agent = agent_of(BOX, "dreamer_v1", world__cnn="pool")
    row = {"vector": torch.zeros(N, 3), "door": torch.zeros(N, dtype=torch.int64), "reward": torch.zeros(N)}
    row |= {key: torch.zeros(N, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}
    _, carry = agent.act(row | {"vector": torch.full((N, 3), torch.nan)}, agent.initial_carry(N), "train")
    assert not carry["deter"].isfinite().any() or not carry["stoch"].isfinite().any()
    _, carry = agent.act(row | {"is_first": torch.ones(N, dtype=torch.bool)}, carry, "train")
    assert all(value.isfinite().all() for value in carry.values())


def test_observations_named_like_losses_are_still_learned():
    space = spaces.Dict({name: spaces.Box(-1, 1, (2,), np.float32) for name in ("cont", "actor", "dyn")})
    agent = Dreamer(space, DISCRETE, stacked(["dreamer_v3", "debug"]), CPU)
    rows = {name: torch.rand(2, 3, 2) for name in space} | {"reward": torch.zeros(2, 3)}
    rows |= {name: torch.zeros(2, 3, dtype=torch.bool) for name in ("is_first", "is_last", "is_terminal")}
    state = State(torch.zeros(2, 3, 64), torch.zeros(2, 3, 16))
    losses = agent.world.head_losses(state, rows)
    assert set(losses) == {"observed_cont", "observed_actor", "observed_dyn", "reward", "cont"}


@pytest.mark.parametrize(
    ("option", "value"),
    [("world.bins", 64), ("behavior.return_low", 96.0), ("behavior.init_std", 0.0), ("behavior.max_std", 0.01)],
)
def test_numbers_that_cannot_be_are_refused(option, value):
    config = replaced(stacked(["dreamer_v3", "debug"]), {option: value})
    with pytest.raises(UserError, match=option.replace(".", r"\.")):
        Dreamer(
            spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32)}), spaces.Discrete(2), config, torch.device("cpu")
        )


def test_gradients_are_cut_by_layer_and_not_as_tensors_happen_to_lie():
    agent = agent_of(BOX)
    (stepper,) = set(agent.steppers.values())
    names = {id(each): name for name, each in agent.named_parameters()}
    order = [names[id(each)] for each in stepper.parameters]
    together = {order[number]: order[group] for number, group in enumerate(stepper.groups) if group != number}
    assert together == {"world.rssm.embed_in.weight": "world.rssm.deter_in.weight"}
    assert {order[number]: sizes for number, sizes in stepper.apart.items()} == {
        "behavior.actor.1.weight": [2, 2],  # means and deviations
        "behavior.actor.1.bias": [2, 2],
    }
    assert not next(iter(agent_of(DISCRETE).steppers.values())).apart
