"""A trial's log as it grows, its score and its words."""

import os

import pytest

from reverie.tools.trial import Log, score, words_of


def test_a_log_is_read_as_it_grows_and_again_when_it_is_replaced(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = Log(path, "a")
    assert log.read() == {}
    path.write_text('{"step": 1, "a": 1.0}\n{"step": 2}\n{"step": 3, "a": nu')
    assert log.read() == {1: 1.0}
    with path.open("a") as file:
        file.write('ll}\n{"step": 4, "a": 4.0}\n')
    assert log.read() == {1: 1.0, 4: 4.0}
    other = tmp_path / "other"
    other.write_text('{"step": 1, "a": 1.0}\n')
    os.replace(other, path)  # as a resumed run does
    assert log.read() == {1: 1.0}


@pytest.mark.parametrize(
    ("kind", "minimize", "value"),
    [("last", False, 2.0), ("best", False, 5.0), ("best", True, 1.0), ("mean", False, 2.667)],
)
def test_the_score_of_a_trial(kind, minimize, value):
    assert score({20: 5.0, 10: 1.0, 30: 2.0}, kind, minimize) == pytest.approx(value, abs=1e-3)
    assert score({}, kind, minimize) is None


def test_a_trial_with_a_checkpoint_goes_on(tmp_path):
    base, folder = tmp_path / "base.yaml", tmp_path / "trial"
    options = {"ppo.lr": 1e-05, "ppo.lr_anneal": True, "env.size": None}
    assert words_of(base, folder, options)[3:-2] == [
        "--ppo.lr",
        "1e-05",
        "--ppo.lr_anneal",
        "True",
        "--env.size",
        "None",
    ]
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints/latest.pt").touch()
    assert words_of(base, folder, options) == ["train", "--resume", "--logdir", str(folder)]
