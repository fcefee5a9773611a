"""Runs that write their episodes to a store, and runs that learn from one."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import reverie
from required import package
from reverie.build import make_parts, make_run
from reverie.config.errors import UserError
from reverie.data.episodes import FolderStore
from reverie.training.folder import prepare

QUIET = {"run__eval_every": 0, "run__eval_at_end": False, "log__tensorboard": False, "task": "toy_count"}


def lines(folder):
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run of PPO on the counting environment that has written its episodes, and their folder."""
    folder = tmp_path_factory.mktemp("written") / "run"
    config = reverie.configure("debug", logdir=str(folder), store__write="folder", **QUIET)
    return reverie.train(config, quiet=True), folder / "episodes"


def learner(folder, store, **options):
    options = {"store__read": str(store), "store__live": False, "log__every": 50, **options}
    return reverie.configure("dreamer_v3", "debug", logdir=str(folder), **QUIET, **options)


def test_every_finished_episode_is_written(written):
    outcome, folder = written
    store = FolderStore(folder)
    episodes = [store.read(name) for name in store.names()]
    assert len(episodes) == outcome.episodes > 40 and not store.damaged
    for episode in episodes:
        assert episode["vector"][:, 0].tolist() == list(range(11)) and episode["reward"].sum() == 55
        assert "logp" in episode and "value" not in episode


def test_a_resumed_run_goes_on_writing_where_it_was(tmp_path):
    config = reverie.configure("debug", logdir=str(tmp_path / "run"), store__write="folder", **QUIET, run__steps=136)
    reverie.train(config, quiet=True)
    outcome = reverie.train(replace(config, run=replace(config.run, steps=300)), resume=True, quiet=True)
    store = FolderStore(tmp_path / "run" / "episodes")
    assert len(store.names()) == outcome.episodes and all(
        len(store.read(each)["reward"]) == 11 for each in store.names()
    )


def test_a_learner_takes_a_store_alone(written, tmp_path, caplog):
    names = FolderStore(written[1]).names()
    copy = tmp_path / "store"
    copy.mkdir()
    for name in names[:20]:
        (copy / name).write_bytes((written[1] / name).read_bytes())
    (copy / names[3]).write_bytes((copy / names[3]).read_bytes()[:-40])
    config = learner(tmp_path / "run", copy)
    with caplog.at_level(logging.WARNING, "reverie"):
        outcome = reverie.train(config, quiet=True)
    assert names[3] in caplog.text and outcome.episodes == 0 and outcome.step >= 512
    last = [line for line in lines(tmp_path / "run") if "store/episodes" in line][-1]
    assert (last["store/episodes"], last["store/steps"], last["store/damaged"]) == (19, 19 * 11 // 4 * 4, 1)
    assert lines(tmp_path / "run")[-1]["updates"] > 40
    assert not any("world/new_kl" in line for line in lines(tmp_path / "run"))  # none of it is new
    again = replace(config, run=replace(config.run, steps=600))
    assert reverie.train(again, resume=True, quiet=True).step >= 600
    saved = torch.load(tmp_path / "run" / "checkpoints" / "latest.pt", weights_only=True)
    assert saved["rehearsal"]["feed"]["episodes"] == 19  # none was read twice


def test_a_store_that_the_replay_cannot_hold_is_told_in_one_line(written, tmp_path, caplog):
    steps = 11 * len(FolderStore(written[1]).names()) // 4 * 4
    for capacity, said in ((200, 1), (steps, 0)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "reverie"):
            reverie.train(
                learner(tmp_path / f"{capacity}", written[1], replay__capacity=capacity, run__steps=8), quiet=True
            )
        assert caplog.text.count(f"gave {steps:,} steps, of which the replay keeps the newest 200:") == said
        assert caplog.text.count("--replay.capacity") == said


def test_live_rows_and_those_of_a_store_lie_in_one_replay(written, tmp_path):
    config = learner(tmp_path / "run", written[1], store__live=True, store__order="newest", store__newest=200)
    parts = make_parts(config)
    try:
        run = make_run(config, prepare(config, False), parts, False, quiet=True)
        for _ in range(30):
            run.round()
        run.logger.close()
        replay = run.rehearsal.replay
        held = {name: replay.columns[name][: replay.total] for name in ("vector", "is_first", "is_last", "deter")}
    finally:
        parts.close()
    assert replay.total * 4 == 220 + 30 * 4 and run.counters.step <= 120
    follows = (held["vector"][1:, :, 0] == held["vector"][:-1, :, 0] + 1) & (
        held["vector"][1:, :, 1] == held["vector"][:-1, :, 1]
    )
    assert torch.equal(held["is_first"][1:], held["is_last"][:-1])
    assert (follows | held["is_first"][1:]).all()


def test_what_cannot_be_learned_from_is_told(written, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="holds 0 steps, too few"):
        reverie.train(learner(tmp_path / "few", empty), quiet=True)
    with pytest.raises(UserError, match="has no image, this run needs"):
        config = reverie.configure(
            "dreamer_v3", "debug", **{**QUIET, "task": "toy_catch"}, logdir=str(tmp_path / "other"),
            store__read=str(written[1]), store__live=False,
        )  # fmt: skip
        reverie.train(config, quiet=True)
    for options, words in {
        ("store__read", str(tmp_path / "none")): "there is no such folder",
        ("store__live", False): "leaves nothing to learn from",
        ("store__write", "mlflow"): "add --log.mlflow",
        ("store__read", "mlflow:abc"): "--log.mlflow_uri",
    }.items():
        with pytest.raises(UserError, match=words):
            make_parts(reverie.configure("dreamer_v3", "debug", **QUIET, **dict([options])))
    with pytest.raises(UserError, match="is for a world model"):
        make_parts(reverie.configure("debug", **QUIET, store__read=str(empty)))


def test_episodes_go_through_mlflow(tmp_path):
    package("mlflow")
    uri = (tmp_path / "mlruns").as_uri()
    config = reverie.configure("debug", logdir=str(tmp_path / "run"), **QUIET, store__write="mlflow", log__mlflow=True,
                               log__mlflow_uri=uri, run__steps=200)  # fmt: skip
    outcome = reverie.train(config, quiet=True)
    run = (tmp_path / "run" / "mlflow_run.txt").read_text().strip()
    offline = learner(tmp_path / "offline", f"mlflow:{run}", log__mlflow_uri=uri, run__steps=100)
    reverie.train(offline, quiet=True)
    read = [line["store/episodes"] for line in lines(tmp_path / "offline") if "store/episodes" in line]
    assert read == [outcome.episodes]
