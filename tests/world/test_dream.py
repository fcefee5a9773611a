import math
from dataclasses import replace

import pytest
import torch
from gymnasium import spaces

import reverie
from reverie.nn.heads import NumberHead
from reverie.nn.layers import Layers
from reverie.nn.outputs import Normal
from reverie.world.dream import Dream, Pair, dream, errors, glimpses, surprise, unexplained
from reverie.world.model import Window, WorldModel
from reverie.world.rssm import State

SPACE = spaces.Dict(
    image=spaces.Box(0, 255, (16, 16, 3), "uint8"), vector=spaces.Box(-9, 9, (3,)), kind=spaces.Discrete(4)
)
ACTIONS, BATCH, LENGTH, CONTEXT = 2, 3, 9, 4


def world_of(**options) -> WorldModel:
    torch.manual_seed(0)
    config = reverie.configure("dreamer_v3", "debug", **options)
    return WorldModel(SPACE, ACTIONS, config.world, config.behavior.gamma)


def window_of(world: WorldModel, first: tuple[tuple[int, int], ...] = ()) -> Window:
    """Random rows with an end before each of the starts (b, t) in `first`."""
    generator = torch.Generator().manual_seed(1)
    size = (BATCH, LENGTH)
    is_first = torch.zeros(size, dtype=torch.bool)
    for place in first:
        is_first[place] = True
    rows = {
        "image": torch.randint(256, (*size, 16, 16, 3), generator=generator, dtype=torch.uint8),
        "vector": torch.randn(*size, 3, generator=generator),
        "kind": torch.randint(4, size, generator=generator),
        "reward": torch.randn(size, generator=generator),
        "is_first": is_first,
        "is_last": is_first.roll(-1, 1),
        "is_terminal": is_first.roll(-1, 1),
    }
    latent = world.rssm.latent
    stoch = latent.sample(latent.params(torch.randn(BATCH, latent.outputs)), latent.noise((BATCH,), generator))
    start = State(torch.randn(BATCH, world.config.deter, generator=generator), stoch)
    return Window(rows, start, torch.randn(*size, ACTIONS, generator=generator), is_first)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.mark.parametrize("latent", ["categorical", "gaussian"])
@torch.no_grad()
def test_surprise_is_the_kl_of_training(latent):
    world = world_of(world__latent=latent)
    window = window_of(world, first=((1, 4),))
    *_, metrics = world.losses(window, seeded())
    assert metrics["kl"] > 0
    torch.testing.assert_close(surprise(world, window, seeded()), metrics["kl"])


@pytest.mark.parametrize("latent", ["categorical", "gaussian"])
@torch.no_grad()
def test_seen_rows_are_filtered_and_the_others_stepped_on_with_the_actions_taken(latent):
    world = world_of(world__latent=latent)
    window = window_of(world)
    found = dream(world, window, CONTEXT, seeded())

    state, _ = world.rssm.observe(window.start, world.encoder(window.rows), window.action, window.is_first, seeded())
    noise = world.rssm.latent.noise((BATCH, LENGTH), seeded())
    now = State(state.deter[:, CONTEXT - 1], state.stoch[:, CONTEXT - 1])
    by_hand = [State(state.deter[:, t], state.stoch[:, t]) for t in range(CONTEXT)]
    for t in range(CONTEXT, LENGTH):
        now = world.rssm.step(now, window.action[:, t], noise[:, t])
        by_hand.append(now)
    whole = State(*(torch.stack(parts, 1) for parts in zip(*by_hand)))

    assert found.seen.tolist() == [[True] * CONTEXT + [False] * (LENGTH - CONTEXT)] * BATCH
    decoded = world.decoder(whole)
    torch.testing.assert_close(found.images["image"].dreamt, decoded["image"].clamp(0, 1))
    torch.testing.assert_close(found.vectors["vector"].dreamt, decoded["vector"])
    torch.testing.assert_close(found.vectors["kind"].dreamt, decoded["kind"])
    torch.testing.assert_close(found.numbers["reward"].dreamt, world.reward(whole.feature))
    torch.testing.assert_close(found.numbers["continue"].dreamt * world.gamma, world.cont(whole.feature))
    filtered = world.decoder(state)["vector"]
    assert not torch.allclose(found.vectors["vector"].dreamt[:, CONTEXT:], filtered[:, CONTEXT:], atol=1e-4)


@torch.no_grad()
def test_rows_that_are_not_seen_change_nothing_but_the_truth():
    world = world_of()
    window = window_of(world)
    before = dream(world, window, CONTEXT, seeded())
    blank = {key: rows.clone() for key, rows in window.rows.items()}
    for key in SPACE:
        blank[key][:, CONTEXT:] = 0
    after = dream(world, replace(window, rows=blank), CONTEXT, seeded())
    for kind in ("images", "vectors", "numbers"):
        for key, pair in getattr(before, kind).items():
            assert torch.equal(pair.dreamt, getattr(after, kind)[key].dreamt), key
    assert not torch.equal(before.vectors["vector"].truth, after.vectors["vector"].truth)


def test_the_first_rows_of_an_episode_within_the_window_are_seen_again():
    is_first = torch.zeros(2, 8, dtype=torch.bool)
    is_first[0, 5] = is_first[1, 1] = True
    assert glimpses(is_first, 2).int().tolist() == [[1, 1, 0, 0, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0, 0, 0]]


@torch.no_grad()
def test_an_episode_within_the_window_knows_nothing_of_the_one_before():
    world = world_of()
    window = window_of(world, first=((0, 5), (1, 5), (2, 5)))
    whole = dream(world, window, 2, seeded())
    alone = Window(window.rows, world.rssm.initial(BATCH), torch.zeros_like(window.action), window.is_first)
    alone.action[:, 6:] = window.action[:, 6:]
    other = dream(world, alone, 2, seeded())
    pairs = whole.vectors["vector"].dreamt, other.vectors["vector"].dreamt
    torch.testing.assert_close(pairs[0][:, 5:], pairs[1][:, 5:])
    assert not torch.allclose(pairs[0][:, :5], pairs[1][:, :5], atol=1e-4)


@torch.no_grad()
def test_values_are_compared_with_those_of_open_eyes():
    world = world_of()
    window = window_of(world)
    critic = NumberHead(Layers("rms", "silu", "fan_in"), world.features, 8, 1, Normal())
    value = dream(world, window, CONTEXT, seeded(), critic).numbers["value"]
    state, _ = world.rssm.observe(window.start, world.encoder(window.rows), window.action, window.is_first, seeded())
    torch.testing.assert_close(value.truth, critic.pred(state.feature))
    torch.testing.assert_close(value.dreamt[:, :CONTEXT], value.truth[:, :CONTEXT])
    assert not torch.allclose(value.dreamt[:, CONTEXT:], value.truth[:, CONTEXT:], atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("representation", ["barlow", "infonce"])
def test_without_a_decoder_there_are_numbers_alone(representation):
    world = world_of(world__representation=representation)
    found = dream(world, window_of(world), CONTEXT, seeded())
    assert found.images == {} and found.vectors == {} and list(found.numbers) == ["reward", "continue"]
    assert list(errors(found)) == ["open_loop_reward_error"]


@torch.no_grad()
def test_truth_is_what_the_rows_say():
    world = world_of(world__reward_target="tanh")
    window = window_of(world, first=((0, 5),))
    found = dream(world, window, CONTEXT, seeded())
    torch.testing.assert_close(found.images["image"].truth * 255, window.rows["image"].float())
    assert torch.equal(found.vectors["kind"].truth.argmax(-1), window.rows["kind"])
    torch.testing.assert_close(found.numbers["reward"].truth, window.rows["reward"].tanh())
    assert found.numbers["continue"].truth[0].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]


def test_the_error_is_the_share_of_variance_left_unexplained_in_rows_not_seen():
    truth = torch.tensor([[9.0, 0.0, 2.0], [9.0, 4.0, 6.0]])  # the first row is seen
    counted = torch.tensor([[False, True, True]] * 2)
    wrong = truth + torch.tensor([[5.0, 1.0, -1.0], [5.0, 1.0, -1.0]])
    # four errors of 1; the mean is 3 and the squares about it 9 + 1 + 1 + 9
    assert math.isclose(float(unexplained(Pair(truth, wrong), counted, together=True)), 4 / 20, rel_tol=1e-6)
    mean = torch.full_like(truth, 3.0)
    assert math.isclose(float(unexplained(Pair(truth, mean), counted, together=True)), 1.0, rel_tol=1e-6)
    assert math.isnan(float(unexplained(Pair(mean, truth), counted, together=True)))
    assert math.isnan(float(unexplained(Pair(truth, wrong), torch.zeros_like(counted), together=True)))


def test_entries_of_a_vector_count_alike_whatever_their_scale_and_pixels_by_how_much_they_vary():
    truth = torch.tensor([[[1.0, 100.0, 5.0], [-1.0, -100.0, 5.0]]])
    dreamt = torch.tensor([[[0.0, 100.0, 6.0], [0.0, -100.0, 6.0]]])  # the mean, the truth, and what never varies
    counted = torch.ones(1, 2, dtype=torch.bool)
    assert math.isclose(float(unexplained(Pair(truth, dreamt), counted, together=False)), 0.5, rel_tol=1e-6)
    assert math.isclose(float(unexplained(Pair(truth, dreamt), counted, together=True)), 4 / 20002, rel_tol=1e-5)


def test_errors_have_a_mean_and_those_of_each_observation():
    ramp = torch.arange(4.0).reshape(1, 4)
    seen = torch.zeros(1, 4, dtype=torch.bool)
    half = Pair(ramp[..., None], torch.full((1, 4, 1), 1.5))
    image = Pair(ramp[..., None, None, None], ramp[..., None, None, None])
    found = errors(Dream(seen, {"image": image}, {"vector": half}, {"reward": Pair(ramp, ramp)}))
    assert {name: round(float(value), 6) for name, value in found.items()} == {
        "open_loop_reward_error": 0.0,
        "open_loop_error": 0.5,
        "open_loop_error/image": 0.0,
        "open_loop_error/vector": 1.0,
    }
