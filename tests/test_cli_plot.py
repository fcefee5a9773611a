"""`reverie plot` as a person uses it."""

import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
from PIL import Image

import reverie
from reverie.config import store
from reverie.tools import panels
from reverie.tools.groups import groups
from reverie.tools.records import records


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with three short runs: two seeds of one configuration and one of another."""
    folder = tmp_path_factory.mktemp("runs")
    for name, seed, lr in (("a0", 0, 1e-3), ("a1", 1, 1e-3), ("b0", 0, 1e-2)):
        options = {"seed": seed, "ppo__lr": lr, "logdir": str(folder / name), "run__eval_videos": 0}
        reverie.train(reverie.configure("cartpole_ppo", "debug", **options), quiet=True)
    return folder


def written(folder: Path, lines: list[dict], **options) -> Path:
    """A run folder with these lines in its log."""
    folder.mkdir(parents=True)
    store.save(reverie.configure("debug", **options), folder)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def lines(metric: str, values: list[float], frames: int = 1) -> list[dict]:
    return [{"step": 100 * (i + 1), "frames": 100 * (i + 1) * frames, metric: each} for i, each in enumerate(values)]


def test_seeds_are_one_curve_and_configurations_several(call, runs, tmp_path):
    out = tmp_path / "curves.png"
    status, printed, _ = call("plot", str(runs), "--out", str(out))
    assert status == 0
    assert "eval/mean_return:" in printed
    assert "lr 0.001: " in printed and "2 runs" in printed and "lr 0.01: " in printed
    with Image.open(out) as picture:
        assert picture.size == (960, 630) and len(set(picture.convert("RGB").get_flattened_data())) > 20


def test_folders_may_follow_options_and_labels_name_the_curves(call, runs, tmp_path):
    out = tmp_path / "a.svg"
    words = ["--out", str(out), str(runs / "a0"), str(runs / "b0"), "--labels", "slow one", "fast one"]
    assert call("plot", *words)[0] == 0
    text = out.read_text()
    xml.fromstring(text)
    assert "slow one" in text and "fast one" in text
    before = out.read_bytes()
    call("plot", *words)
    assert out.read_bytes() == before


def test_any_metric_over_any_count(call, runs, tmp_path):
    for x in ("steps", "frames", "time", "updates"):
        words = ["--metric", "train/entropy", "--x", x, "--band", "stderr", "--smooth", "0.2"]
        assert call("plot", str(runs), *words, "--out", str(tmp_path / f"{x}.pdf"))[0] == 0
    assert call("plot", str(runs), "--metric", "list")[1].split()[:2] == ["episode/broken", "episode/length"]


def test_where_environments_run_parts_no_seeds_but_how_rows_are_collected_does(tmp_path):
    for number, options in enumerate(({}, {"envs__workers": 2}, {"envs__count": 3}, {"collect__mode": "process"})):
        written(tmp_path / str(number), lines("eval/mean_return", [1, 2]), seed=number, **options)
    assert sorted(len(each) for each in groups(records([tmp_path]), "config").values()) == [1, 1, 2]


def test_groups_by_folder_and_by_run(call, runs, tmp_path):
    out = str(tmp_path / "a.png")
    assert f", {runs.name}: " in call("plot", str(runs), "--group", "folder", "--out", out)[1]
    printed = call("plot", str(runs), "--group", "run", "--out", out)[1]
    assert all(f", {name}: " in printed for name in ("a0", "a1", "b0"))


def test_the_training_return_stands_in_where_nothing_was_evaluated(call, tmp_path):
    written(tmp_path / "run", lines("episode/return", [1, 2, 3]))
    assert "episode/return:" in call("plot", str(tmp_path), "--out", str(tmp_path / "a.png"))[1]


def test_runs_that_have_not_come_far_are_left_out_or_drawn_as_far_as_they_are(call, tmp_path):
    written(tmp_path / "long", lines("eval/mean_return", [1, 2, 3]))
    short = written(tmp_path / "short", lines("eval/mean_return", [5]), seed=1)
    with (short / "metrics.jsonl").open("a") as file:
        file.write('{"step": 200, "frames": 20')  # a run that was killed while it wrote
    (written(tmp_path / "none", [], seed=2) / "metrics.jsonl").unlink()
    status, printed, err = call("plot", str(tmp_path), "--out", str(tmp_path / "a.png"))
    assert status == 0
    assert "none has no eval/mean_return yet: left out" in err
    assert ": 3 at 300 steps, 2 runs, 1 of them that far" in printed


def test_a_folder_of_another_version_is_drawn(call, tmp_path):
    folder = written(tmp_path / "run", lines("eval/mean_return", [1, 2]))
    with (folder / store.NAME).open("a") as file:
        file.write("invented:\n  option: 3\n")
    assert call("plot", str(tmp_path), "--out", str(tmp_path / "a.png"))[0] == 0


def test_published_scores_stand_beside_runs_of_their_task(call, tmp_path):
    written(tmp_path / "pong", lines("eval/mean_return", [-21.0] * 500, 4), task="atari_pong")
    written(tmp_path / "cart", lines("eval/mean_return", [1, 2]), task="gym_CartPole-v1")
    arguments = panels.PlotArguments(logdir=(str(tmp_path),))
    cart, pong = panels.chart(records([tmp_path]), arguments).panels
    assert [each.method for each in pong.references] == ["DreamerV3, published (Atari-100k)"] and not cart.references
    assert pong.frames_per_step == 4
    for x, extra in (("steps", []), ("frames", []), ("steps", ["--published", "none"])):
        out = tmp_path / "a.svg"
        assert call("plot", str(tmp_path), "--x", x, *extra, "--out", str(out))[0] == 0
        assert ("DreamerV3, published" in out.read_text()) == (not extra)


def test_published_scores_of_all_runs_of_a_panel_stand_there_once(tmp_path):
    for number, observation in enumerate(("vision", "proprio", "vision")):
        options = {"task": "dmc_walker_walk", "env__dmc__observation": observation, "seed": number}
        written(tmp_path / str(number), lines("eval/mean_return", [1, 2]), **options)
    (panel,) = panels.chart(records([tmp_path]), panels.PlotArguments(logdir=(str(tmp_path),))).panels
    methods = [each.method for each in panel.references]
    assert methods == ["DreamerV3, published (vision)", "DreamerV3, published (proprio)"]


def test_published_levels_stand_where_runs_are_much_shorter(call, tmp_path):
    written(tmp_path / "run", lines("eval/mean_return", [-21.0, -21.0], 4), task="atari_pong")
    call("plot", str(tmp_path), "--out", str(tmp_path / "a.svg"))
    assert "DreamerV3, published (Atari-100k): -4.9 at 400,000 frames" in (tmp_path / "a.svg").read_text()


def test_scores_of_the_readers_own(call, runs, tmp_path):
    (tmp_path / "peer.csv").write_text("method,frames,score\npeer,100,20\npeer,500,30\n")
    words = ["--published", str(tmp_path / "peer.csv"), "--out", str(tmp_path / "a.svg")]
    assert call("plot", str(runs), *words)[0] == 0
    assert "peer, published" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plot", "plot needs folders of runs"),
        ("plot {tmp}/none", "no folder"),
        ("plot {tmp}", "holds no run"),
        ("plot {runs} --metric eval/mean_retrun", "did you mean eval/mean_return"),
        ("plot {runs} --out a.txt", "a picture ends in .png"),
        ("plot {runs} --out {tmp}/none/a.png", "there is no folder"),
        ("plot {runs} --out /proc/a.png", "cannot write /proc/a.png: No such file or directory: make room or choose"),
        ("plot {runs} --labels one", "--labels has 1 names for 2 curves: lr 0.001 | lr 0.01"),
        ("plot {runs} --smooth 2", "between 0 and 1"),
        ("plot {runs} --x hours", "--x is one of steps, frames, time, updates"),
        ("plot {runs} --published {tmp}/none.json", "no file"),
        ("plot {runs} --metrik a", "did you mean --metric"),
    ],
)
def test_wrong_input_is_one_line(call, runs, tmp_path, line, words):
    status, _, err = call(*line.format(runs=runs, tmp=tmp_path).split())
    assert status == 2 and words in err and len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_runs_without_a_log_are_an_error_and_damaged_options_too(call, tmp_path):
    folder = written(tmp_path / "run", [])
    assert "nothing is logged yet" in call("plot", str(tmp_path), "--out", str(tmp_path / "a.png"))[2]
    (folder / store.NAME).write_text("- a list")
    assert call("plot", str(tmp_path), "--out", str(tmp_path / "a.png"))[0] == 2


def test_without_matplotlib_the_extra_is_named(call, runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, _, err = call("plot", str(runs), "--out", str(tmp_path / "a.png"))
    assert status == 2 and "pip install 'reverie[plot]' (in a checkout: pip install -e '.[plot]')" in err
