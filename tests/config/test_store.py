"""The configuration beside a run: where a new run goes."""

from pathlib import Path

from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.config.store import with_logdir


def test_a_run_without_a_folder_gets_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "now")
    config = replaced(stacked(["debug"]), {"task": "package.games:Maze/small"})
    first = with_logdir(config)
    assert first.logdir == "logdir/package.games-Maze-small-ppo-now"
    Path(first.logdir).mkdir(parents=True)
    assert with_logdir(config).logdir == f"{first.logdir}-2"
    assert with_logdir(first) is first
