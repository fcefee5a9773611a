"""Published scores: the table and files."""

import gzip
import json

import pytest

from reverie.config.errors import UserError
from reverie.config.options import flattened, replaced
from reverie.config.presets import stacked
from reverie.config.schema import Config
from reverie.tools.published import TABLE, from_file, known


def of_task(**options):
    return known(flattened(replaced(Config(), {name.replace("__", "."): each for name, each in options.items()})))


def test_the_table_knows_tasks_and_their_observations():
    (pong,) = of_task(task="atari_pong", run__steps=100_000)
    assert pong.series[0].x[-1] == 400e3 and pong.series[0].y[-1] == -4.9
    (vision,) = of_task(task="dmc_walker_walk", env__dmc__observation="vision")
    (proprio,) = of_task(task="dmc_walker_walk", env__dmc__observation="proprio")
    assert vision.series[0].x[-1] == 1e6 and proprio.series[0].x[-1] == 500e3
    assert of_task(task="gym_CartPole-v1") == []
    assert all(each.source for several in TABLE.values() for each in several)


def test_scores_of_atari_are_for_runs_of_their_protocol():
    known_of = {
        preset: known(flattened(stacked([preset]))) for preset in ("atari100k", "atari", "atari_ppo", "dmc_vision")
    }
    assert known_of["atari"] == known_of["atari_ppo"] == [] and known_of["dmc_vision"]
    assert "Atari-100k" in known_of["atari100k"][0].method
    near = {"task": "atari_pong", "run__steps": 100_000}
    assert of_task(**near) and not of_task(**near, env__atari__sticky=0.25)
    assert of_task(**near, env__repeat=1) and not of_task(**near | {"run__steps": 1_000_000})


def test_scores_in_json_are_read_by_task_and_method(tmp_path):
    runs = [
        {"task": "atari_pong", "method": "one", "seed": 0, "xs": [1, 2, 3], "ys": [1, None, 3]},
        {"task": "atari_pong", "method": "one", "seed": 1, "xs": [1], "ys": [5]},
        {"task": "atari_pong", "method": "two", "xs": [1], "ys": [7]},
        {"task": "atari_boxing", "method": "one", "xs": [1], "ys": [9]},
    ]
    (tmp_path / "scores.json").write_text(json.dumps(runs))
    (tmp_path / "scores.json.gz").write_bytes(gzip.compress(json.dumps(runs).encode()))
    for name in ("scores.json", "scores.json.gz"):
        one, two = from_file(tmp_path / name, "atari_pong")
        assert one.method == "one, published" and [run.y.tolist() for run in one.series] == [[1, 3], [5]]
        assert two.series[0].y.tolist() == [7]


def test_scores_in_csv_are_read(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("method,seed,frames,score\nA,0,100,1\nA,0,200,2\nA,1,100,3\n")
    (found,) = from_file(path, "any_task")
    assert [run.y.tolist() for run in found.series] == [[1, 2], [3]]
    path.write_text("frames,score\n100,1\n")
    assert from_file(path, "any_task")[0].method == "mine, published"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "no file of scores"),
        ("a.json", "{}", "a list of objects"),
        ("a.json", '[{"xs": [1], "ys": []}]', "do not fit"),
        ("a.json", '[{"xs": [], "ys": []}]', "without scores"),
        ("a.json.gz", "{}", "no file of scores"),
        ("a.csv", "step,score\n1,2\n", "no column 'frames'"),
        ("a.csv", "frames,score\n1,high\n", "could not convert"),
    ],
)
def test_files_of_another_kind_are_told_in_one_line(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words):
        from_file(tmp_path / name, "any")
    with pytest.raises(UserError, match="no file"):
        from_file(tmp_path / "none.json", "any")
