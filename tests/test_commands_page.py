"""The table from other projects' commands to ours."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "program",
    ["train_mario_ppo.py", "play_mario_ppo.py", "dreamer.py", "launch.py", "agent.train_dreamer_godot",
     "opt_dreamer.py train", "opt_dreamer.py run", "launch_tests.py", "requirements.txt", "setup_scripts/atari.sh"],
)  # fmt: skip
def test_other_projects_commands_have_one_of_ours(program):
    table = (ROOT / "docs/commands.md").read_text()
    rows = re.findall(r"^\| (`.+?) \| (`.+) \|$", table.partition("\n## ")[0], re.MULTILINE)
    assert any(program in there and re.match(r"`(reverie|make|pip) ", here) for there, here in rows)
