"""Run folders: nothing is overwritten, nothing is shared."""

import errno
import json
import os
from dataclasses import replace

import pytest
import torch

from reverie.config import store
from reverie.config.errors import UserError
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.data.counters import Counters
from reverie.log.disk import writing
from reverie.training import checkpoint
from reverie.training.folder import prepare, withdrawn


def config_in(path, **options):
    return replaced(stacked(["cartpole_ppo"]), {"logdir": str(path), **options})


def test_the_saved_configuration_is_enough_to_repeat_the_run(tmp_path):
    config = config_in(tmp_path / "run", imports=["a", "b"], **{"env.size": 32, "ppo.lr": 0.125})
    prepare(config, resume=False)
    assert store.load(tmp_path / "run") == config


def test_a_used_folder_is_refused_unless_resumed(tmp_path):
    config = config_in(tmp_path / "run")
    prepare(config, resume=False)
    with pytest.raises(UserError, match="already holds a run: add --resume"):
        prepare(config, resume=False)
    prepare(config, resume=True)


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="holds other files"):
        prepare(config_in(tmp_path), resume=False)
    with pytest.raises(UserError, match="holds no run"):
        prepare(config_in(tmp_path), resume=True)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


def test_another_configuration_is_refused_with_the_difference(tmp_path):
    config = config_in(tmp_path / "run")
    prepare(config, resume=False)
    other = replaced(config, {"ppo.lr": 0.5, "seed": 3, "run.steps": 10})
    for resume in (True, False):
        with pytest.raises(UserError) as caught:
            prepare(other, resume)
        assert "another configuration (seed: 0 -> 3; ppo.lr: 0.004 -> 0.5): use another" in str(caught.value)
    assert store.load(tmp_path / "run") == config


def test_of_many_differences_some_are_told(tmp_path):
    prepare(config_in(tmp_path / "run"), resume=False)
    with pytest.raises(UserError, match=r"\(task: gym_CartPole-v1 -> atari_pong; .*; [0-9]+ more\): use"):
        prepare(replaced(stacked(["atari"]), {"logdir": str(tmp_path / "run")}), resume=False)


@pytest.mark.parametrize(("step", "left"), [(0, []), (800, []), (801, ["config.yaml", "metrics.jsonl"])])
def test_a_run_that_is_refused_in_its_first_steps_leaves_its_folder_to_the_next(tmp_path, step, left):
    config = config_in(tmp_path, **{"envs.count": 8})
    prepare(config, resume=False)
    (tmp_path / "metrics.jsonl").touch()  # nothing is logged yet, however many steps were played
    with pytest.raises(UserError, match="NaN"), withdrawn(config, resume=False) as counters:
        counters.append(Counters(step=step))
        raise UserError("an observation has NaN")
    assert sorted(each.name for each in tmp_path.iterdir()) == left


def test_a_refused_run_takes_away_what_it_wrote_and_nothing_else(tmp_path):
    config = config_in(tmp_path / "run")
    prepare(config, resume=False)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "run" / "thesis").symlink_to(tmp_path / "thesis")
    (tmp_path / "run" / "episodes").mkdir()
    (tmp_path / "run" / "episodes" / "one.npz").write_text("precious")
    with pytest.raises(UserError, match="NaN"), withdrawn(config, resume=False):
        raise UserError("an observation has NaN")
    assert sorted(each.name for each in (tmp_path / "run").rglob("*")) == ["episodes", "one.npz", "thesis"]


def test_a_run_that_could_not_write_may_go_on(tmp_path):
    config = config_in(tmp_path)
    prepare(config, resume=False)
    with pytest.raises(UserError, match="No space"), withdrawn(config, resume=False), writing(tmp_path / "events"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    prepare(config, resume=True)


def test_a_run_whose_first_checkpoint_found_no_room_may_go_on(tmp_path):
    """Torch tells of a full disk by an error of its own."""
    config = config_in(tmp_path)
    prepare(config, resume=False)
    (tmp_path / "checkpoints").mkdir()
    latest = tmp_path / "checkpoints" / "latest.pt"
    latest.with_name(".latest.pt.partial").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"No space left.* then --resume"), withdrawn(config, resume=False):
        checkpoint.save(latest, {"a": torch.zeros(100_000)})
    prepare(config, resume=True)


def test_a_run_without_a_checkpoint_is_told_so_with_and_without_resume(tmp_path):
    config = config_in(tmp_path)
    prepare(config, resume=False)
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 500}) + "\n")
    for resume in (False, True):
        with pytest.raises(UserError, match=r"log up to step 500, but no latest.pt: .* remove"):
            prepare(config, resume)


@pytest.mark.parametrize(("name", "resume"), [("checkpoints/best.pt", False), ("nonfinite-7.npz", False), ("a", True)])
def test_a_refused_run_keeps_what_may_be_wanted(tmp_path, name, resume):
    config = config_in(tmp_path)
    prepare(config, resume=False)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / name).write_text("precious")
    with pytest.raises(UserError, match="NaN"), withdrawn(config, resume):
        raise UserError("an observation has NaN")
    assert (tmp_path / name).read_text() == "precious"


def test_more_steps_may_be_given(tmp_path):
    config = config_in(tmp_path / "run")
    prepare(config, resume=False)
    prepare(replace(config, run=replace(config.run, steps=10**6)), resume=True)
    assert store.load(tmp_path / "run").run.steps == 10**6
