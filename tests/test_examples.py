"""The examples run, and each is listed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reverie
from reverie.config.presets import stacked

ROOT = Path(__file__).parent.parent
PACKAGE = Path(reverie.__file__).parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LEFT = {"world_model.py": "dream.png", "offline.py": "episodes/*.npz"}
"""What else is in the folder of a run that an example made."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    words = [sys.executable, str(example), "300"]
    places = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(words, cwd=tmp_path, env=places, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["logdir"]
    assert list(tmp_path.glob("logdir/*/checkpoints/latest.pt"))
    assert list(tmp_path.glob(f"logdir/*/{LEFT.get(example.name, 'metrics.jsonl')}"))


def test_every_example_is_listed():
    listed = re.findall(r"^\| \[([\w.]+)\]", (ROOT / "examples/README.md").read_text(), re.M)
    assert sorted(listed) == [path.name for path in EXAMPLES]


def test_the_example_of_a_preset_stacks():
    config = stacked([str(ROOT / "examples/own_preset.yaml")])
    assert (config.task, config.run.steps, config.ppo.lr) == ("gym_CartPole-v1", 30_000, 2e-3)
