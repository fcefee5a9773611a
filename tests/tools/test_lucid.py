"""Dreams that someone acts in."""

from pathlib import Path

import numpy as np
import pytest
import torch

import reverie
from reverie import actors
from reverie.config.errors import UserError
from reverie.tools.lucid import LucidDream

CPU = torch.device("cpu")


@pytest.fixture
def lucid():
    """A dream of an untrained agent on a task; its environments are closed in the end."""
    streams = []

    def make(task: str = "toy_count", context: int = 3, preset: str = "dreamer_v3", **options) -> LucidDream:
        config = reverie.configure(preset, "debug", task=task, **options)
        streams.append(actors.make_stream(config, count=1))
        agent = actors.make_agent(config, *streams[-1].spaces, CPU)
        return LucidDream(agent, streams[-1], context, "eval", CPU)

    yield make
    for stream in streams:
        stream.close()


def truths(moments) -> list[float]:
    return [float(moment.truth.vectors["vector"][0]) for moment in moments]


def test_the_model_sees_the_first_steps_and_then_goes_on_alone(lucid):
    dream = lucid()
    moments = dream.begin(beside=False)
    assert [moment.seen for moment in moments] == [True] * 3 and truths(moments) == [0, 1, 2]
    assert moments[0].action is None and moments[1].action is not None
    alone = [dream.step(None) for _ in range(20)]
    assert not any(moment.seen or moment.truth or moment.over for moment in alone)
    assert len(np.unique([moment.dream.vectors["vector"][0] for moment in alone])) > 10


def test_beside_the_truth_the_real_episode_goes_along_until_it_ends(lucid):
    dream = lucid()
    dream.begin(beside=True)
    moments = [dream.step(None) for _ in range(8)]
    assert truths(moments) == list(range(3, 11))
    assert [moment.over for moment in moments] == [False] * 7 + [True]
    assert moments[-1].truth.numbers["continue"] == 0 and moments[-1].truth.numbers["reward"] == 10
    assert dream.step(None).truth is None
    label = moments[0].truth.vectors["vector"][1]
    assert dream.begin(beside=True)[0].truth.vectors["vector"][1] != label


def test_an_episode_that_ends_while_it_is_seen_is_told(lucid):
    dream = lucid(context=50)
    moments = dream.begin(beside=True)
    assert len(moments) == 11 and moments[-1].over
    assert dream.step(None).truth is None


@pytest.mark.parametrize("task", ["toy_catch", "gym_Pendulum-v1"])
def test_the_real_environment_gets_the_persons_actions_and_so_does_the_dream(lucid, task):
    ends = []
    for which in (0, 1):
        dream = lucid(task, context=1)
        dream.begin(beside=True)
        action = (
            [np.int64(0), np.int64(2)][which] if task == "toy_catch" else np.full(1, [-2.0, 2.0][which], np.float32)
        )
        for _ in range(3):
            moment = dream.step(action)
        np.testing.assert_array_equal(moment.action, action)
        ends.append((moment, dream.state.deter))
    (left, before), (right, after) = ends
    for kind in ("images", "vectors"):
        for key, value in getattr(left.truth, kind).items():
            assert (value != getattr(right.truth, kind)[key]).any()
    assert (before - after).abs().max() > 1e-4


def test_the_agent_acts_on_the_truth_where_it_sees_it_and_on_the_dream_elsewhere(lucid):
    dream = lucid("gym_Pendulum-v1")
    with torch.no_grad():
        dream.agent.behavior.actor[-1].weight.normal_(generator=torch.Generator().manual_seed(0))
    dream.begin(beside=True)
    wanted = dream.chosen
    np.testing.assert_allclose(dream.step(None).action, wanted[0].clamp(-2, 2).numpy())
    dream.begin(beside=False)
    wanted = dream._policy().detach()
    np.testing.assert_allclose(dream.step(None).action, wanted[0].clamp(-2, 2).numpy())


def test_it_is_the_open_loop_dream_of_the_same_actions(lucid, monkeypatch):
    dream = lucid(context=3)
    agent, latent = dream.agent, dream.agent.world.rssm.latent
    monkeypatch.setattr(latent, "sample", lambda params, noise: latent.mode(params))
    moments = dream.begin(beside=True)
    moments += [dream.step(np.int64(i % 2)) for i in range(5)]
    actions = [moment.action for moment in moments[1:]] + [0]
    rows = {
        "vector": torch.tensor(np.stack([moment.truth.vectors["vector"] for moment in moments]))[None],
        "reward": torch.tensor([[moment.truth.numbers["reward"] for moment in moments]]),
        "action": torch.tensor(np.array(actions, np.int64))[None],
        "is_first": torch.tensor([[i == 0 for i in range(8)]]),
        "is_last": torch.zeros(1, 8, dtype=torch.bool),
        "is_terminal": torch.zeros(1, 8, dtype=torch.bool),
    }
    expected = agent.dream(rows, agent.initial_carry(1), context=3)
    shown = np.stack([moment.dream.vectors["vector"] for moment in moments])
    np.testing.assert_allclose(shown, expected.vectors["vector"].dreamt[0].numpy(), rtol=1e-4, atol=1e-4)
    for name in ("reward", "value", "continue"):
        pair = expected.numbers[name]
        np.testing.assert_allclose([m.dream.numbers[name] for m in moments], pair.dreamt[0].numpy(), atol=1e-4)
        np.testing.assert_allclose([m.truth.numbers[name] for m in moments], pair.truth[0].numpy(), atol=1e-4)


def test_models_without_a_decoder_show_their_numbers_and_the_truth(lucid):
    dream = lucid("toy_catch", world__representation="barlow")
    moment = dream.begin(beside=True)[-1]
    assert not moment.dream.images and set(moment.dream.numbers) == {"reward", "value", "continue"}
    assert moment.truth.images["image"].shape == (32, 32, 3)


def test_environments_without_images_draw_themselves(lucid):
    assert lucid("gym_CartPole-v1").begin(beside=True)[0].picture.shape[2] == 3
    assert lucid("toy_catch").begin(beside=True)[0].picture is None


def test_an_agent_without_a_world_model_is_refused(lucid):
    with pytest.raises(UserError, match="no world model"):
        lucid(preset="defaults")


def test_the_page_is_in_the_package():
    assert (Path(reverie.__file__).parent / "tools/page.html").is_file()
