from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import reverie
from reverie import actors, reopened
from reverie.cli import run
from reverie.config.errors import UserError
from reverie.config.store import load
from reverie.log.dreams import GUTTER
from reverie.tools.dream import Stretch, Take, dreams, figures, joined, play
from reverie.world.dream import errors


def trained(folder: Path, task: str, **options) -> Path:
    config = reverie.configure("dreamer_v3", "debug", task=task, logdir=str(folder), run__steps=160, **options)
    reverie.train(config, quiet=True)
    return folder


@pytest.fixture(scope="module")
def counter(tmp_path_factory) -> Path:
    """A run whose observation is the number of the step."""
    return trained(tmp_path_factory.mktemp("runs") / "count", "toy_count", run__eval_videos=0)


def dreamt(folder: Path, stretch: Stretch, episodes: int = 2):
    file = folder / "checkpoints/latest.pt"
    return reopened.dream_checkpoint(load(folder), file, episodes, stretch, "eval")[0]


@pytest.mark.parametrize(
    ("stretch", "steps"),
    [
        (Stretch(0, 60), list(range(11))),
        (Stretch(0, 4), [0, 1, 2, 3]),
        (Stretch(3, 4), [3, 4, 5, 6]),
        (Stretch(30, 4), [7, 8, 9, 10]),
        (Stretch(2, 60), list(range(11))),
    ],
)
def test_the_steps_asked_for_are_dreamt_or_the_last_ones_of_a_shorter_episode(counter, stretch, steps):
    found = dreamt(counter, stretch)
    assert len(found) == 2
    for each in found:
        assert each.vectors["vector"].truth[0, :, 0].tolist() == steps
        assert each.numbers["reward"].truth[0].tolist() == steps
        assert each.seen[0].tolist() == [i < stretch.context for i in range(len(steps))]
    labels = [each.vectors["vector"].truth[0, 0, 1].item() for each in found]
    assert labels[0] != labels[1]


def test_what_the_agent_remembers_belongs_to_the_row_before_the_first(counter):
    config, device = load(counter), torch.device("cpu")
    kept = []
    for stretch in (Stretch(0, 8), Stretch(3, 5)):
        stream = actors.make_stream(config, count=2)
        agent = actors.make_agent(config, *stream.spaces, device)
        takes = [Take(stretch) for _ in range(2)]
        with torch.inference_mode():
            play(agent, stream, takes, "sample", device)
        stream.close()
        kept.append(takes[1])
    whole, later = kept
    assert [row["vector"][0, 0].item() for row in later.rows] == [3, 4, 5, 6, 7]
    for key, value in later.carries[0].items():
        assert torch.equal(value, whole.carries[3][key]), key
    assert torch.equal(later.carries[0]["action"], agent.code.encode(whole.rows[2]["action"]))


def test_errors_are_taken_over_all_episodes_together(counter):
    found = dreamt(counter, Stretch(0, 60))
    whole = joined(found)
    assert whole.seen.shape == (1, 22) and whole.vectors["vector"].truth.shape == (1, 22, 2)
    expected = {name: float(value) for name, value in errors(whole).items()}
    assert figures(found) == expected and expected["open_loop_error"] > 0


def test_the_same_dream_twice(counter):
    left, right = (dreamt(counter, Stretch(0, 8)) for _ in range(2))
    assert torch.equal(left[1].numbers["value"].dreamt, right[1].numbers["value"].dreamt)


@pytest.mark.parametrize(
    ("task", "options", "charts"),
    [
        ("toy_catch", {}, 3),
        ("toy_hybrid", {}, 5),
        ("gym_CartPole-v1", {}, 7),
        ("toy_reach", {"world__representation": "barlow"}, 3),
    ],
)
def test_a_gif_is_written_for_images_vectors_both_and_neither(tmp_path, capsys, task, options, charts):
    folder = trained(tmp_path / "run", task, **options)
    videos = list((folder / "videos").glob("world_dream_*.gif"))
    assert videos
    assert run(["dream", "--logdir", str(folder), "--length", "9", "--episodes", "2", "--context", "3"]) == 0
    path = Path(capsys.readouterr().out.splitlines()[-1])
    assert path.parent == folder / "gifs" and path.name.startswith("dream_best_0000001")
    images = task in ("toy_catch", "toy_hybrid")
    for file, steps in (
        (path, {9}),
        (videos[0], {19, 20, 21}),
    ):  # the second: half the replay
        with Image.open(file) as gif:
            column, chart = (134, 46) if images else (260, 60)
            assert gif.size == (GUTTER + 2 * (column + 8), 22 + images * 3 * 138 + charts * (chart + 4) + 22)
            assert gif.n_frames in steps
            first = np.asarray(gif.convert("RGB")).astype(int)
            gif.seek(gif.n_frames - 1)
            assert (np.abs(np.asarray(gif.convert("RGB")) - first).max(-1) > 60).any()


def test_many_episodes_go_into_several_gifs_where_they_are_asked_for(counter, tmp_path, capsys):
    words = ["dream", "--logdir", str(counter), "--length", "4", "--episodes", "5", "--gif-dir", str(tmp_path)]
    assert run([*words, "--gif-fps", "25", "--checkpoint", "latest"]) == 0
    named = [Path(line) for line in capsys.readouterr().out.splitlines() if line.endswith(".gif")]
    assert named == sorted(tmp_path.glob("dream_latest_*_[12].gif")) and len(named) == 2
    with Image.open(named[0]) as left, Image.open(named[1]) as right:
        assert left.size[0] - right.size[0] == 3 * 268 and left.info["duration"] == 40


def test_figures_without_a_gif(counter, tmp_path, capsys):
    assert run(["dream", "--logdir", str(counter), "--save-gif", "False", "--gif-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "open_loop_error" in out and ".gif" not in out and not list(tmp_path.iterdir())


def test_an_agent_without_a_world_model_cannot_dream(counter):
    config = reverie.configure("debug", task="toy_count")
    stream = actors.make_stream(config, count=1)
    agent = actors.make_agent(config, *stream.spaces, torch.device("cpu"))
    with pytest.raises(UserError, match="no world model"):
        dreams(agent, stream, Stretch(), "eval", torch.device("cpu"))
    stream.close()
