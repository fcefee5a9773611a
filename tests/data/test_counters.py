import subprocess
import sys

from reverie.data.counters import Counters


def test_counts_survive_but_the_budget_is_the_new_runs():
    old = Counters(step=10, frames=40, updates=3, episodes=2, elapsed=1.5, total=20)
    new = Counters(total=50)
    new.load_state_dict(old.state_dict())
    assert new == Counters(step=10, frames=40, updates=3, episodes=2, elapsed=1.5, total=50)


def test_progress_is_a_part_of_the_budget():
    assert Counters(step=5, total=20).progress == 0.25
    assert Counters(step=25, total=20).progress == 1.0
    assert Counters(step=5).progress == 0.0


def test_importing_counters_leaves_torch_out():
    code = "import sys, reverie.data.counters; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
