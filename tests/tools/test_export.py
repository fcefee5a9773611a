"""Exported files, for programs that have nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import reverie
from reverie import reopened
from reverie.cli import run
from reverie.config.errors import UserError
from reverie.config.store import load
from reverie.tools import export


@pytest.fixture(scope="module")
def dreamer(tmp_path_factory) -> Path:
    """A short run of Dreamer."""
    folder = tmp_path_factory.mktemp("runs") / "dreamer"
    small = {"task": "gym_CartPole-v1", "run__steps": 160, "run__eval_videos": 0}
    reverie.train(reverie.configure("dreamer_v3", "debug", logdir=str(folder), **small), quiet=True)
    return folder


ALONE = """
import json, sys
import numpy as np, onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
about = json.loads(session.get_modelmeta().custom_metadata_map["reverie"])
inputs = {each["name"]: np.zeros((3, *each["shape"]), each["dtype"]) for each in about["inputs"]}
inputs["is_first"][:] = True
for each, found in zip(about["outputs"], session.run([each["name"] for each in about["outputs"]], inputs)):
    assert found.shape == (3, *each["shape"]) and found.dtype == each["dtype"], each
    print(each["name"], found.dtype)
assert "torch" not in sys.modules and "reverie" not in sys.modules
"""


def test_a_program_without_torch_finds_all_it_needs_in_the_file(dreamer, tmp_path, capsys):
    path = tmp_path / "policy.onnx"
    assert run(["export", "--logdir", str(dreamer), "--out", str(path)]) == 0
    out = capsys.readouterr().out
    assert "carry_deter    float32  (batch, " in out and "one of 2 choices" in out and "policy.onnx: 0." in out
    assert [each.name for each in tmp_path.iterdir()] == ["policy.onnx"]
    done = subprocess.run([sys.executable, "-c", ALONE, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["action", "int64", "value", "float32", "deter", "float32", "stoch", "float32"]


@pytest.fixture(scope="module")
def torch_file(dreamer) -> Path:
    """The run as a file of torch."""
    path = dreamer / "policy.pt2"
    assert run(["export", "--logdir", str(dreamer), "--out", str(path), "--checkpoint", "latest"]) == 0
    return path


def test_a_torch_file_describes_itself_and_holds_no_decoder(torch_file):
    extra = {"reverie.json": ""}
    program = torch.export.load(torch_file, extra_files=extra)
    about = json.loads(extra["reverie.json"])
    assert about["task"] == "gym_CartPole-v1" and about["step"] >= 160
    carried = {"carry_deter", "carry_stoch", "carry_action"}
    assert {each["name"] for each in about["inputs"]} == {"vector", "is_first"} | carried
    assert not [name for name in program.state_dict if "decoder" in name or "slow" in name]


def test_what_was_remembered_is_forgotten_where_an_episode_begins(torch_file):
    extra = {"reverie.json": ""}
    step = torch.export.load(torch_file, extra_files=extra).module()
    ports = json.loads(extra["reverie.json"])["inputs"]
    clean = {each["name"]: torch.zeros(2, *each["shape"], dtype=getattr(torch, each["dtype"])) for each in ports}
    full = clean | {"carry_deter": torch.full_like(clean["carry_deter"], 0.7), "carry_action": torch.tensor([1, 1])}
    left = step(clean | {"is_first": torch.tensor([True, True])})["deter"]
    right = step(full | {"is_first": torch.tensor([True, False])})["deter"]
    assert torch.equal(left[0], right[0])
    assert (left[1] - right[1]).abs().max() > 0.01


def test_files_are_not_overwritten(dreamer, tmp_path):
    path = tmp_path / "policy.onnx"
    path.write_text("mine")
    with pytest.raises(UserError, match="exists"):
        reopened.export_checkpoint(load(dreamer), dreamer / "checkpoints/latest.pt", path, stochastic=False)
    assert path.read_text() == "mine"


def test_a_missing_extra_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "NEEDED", ("onnx", "no_such_package"))
    with pytest.raises(UserError, match=r"needs no_such_package: pip install .*export"):
        export.check_target(tmp_path / "policy.onnx")
    export.check_target(tmp_path / "policy.pt2")
