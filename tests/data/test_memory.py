"""A resumed run does not load its replay twice: memory that is used on the way, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

STATUS = Path("/proc/self/status")

SAVE = """
import sys
from pathlib import Path
import torch
from reverie.data.disk import Archive
from reverie.data.replay import Replay

folder, capacity = Path(sys.argv[1]), int(sys.argv[2])
replay = Replay(4, capacity, device=torch.device("cpu"), selectors={"uniform": 1.0})
block = 100
for start in range(0, capacity // 4 + 250, block):  # the ring has begun anew
    replay.add({
        "image": torch.full((block, 4, 64, 64, 3), start // block % 251, dtype=torch.uint8),
        "step": torch.arange(start, start + block)[:, None].expand(-1, 4),
        "deter": torch.zeros(block, 4, 1024, dtype=torch.bfloat16),
    })
sample = replay.sample(8, 10)
replay.update(sample["index"], {"deter": sample["deter"] + 1})
Archive(folder / "saved").save(replay)
torch.save(replay.state(), folder / "state.pt")
"""

LOAD = """
import json, sys
from pathlib import Path
import torch
from reverie.data.disk import Archive
from reverie.data.replay import Replay
from reverie.data.storage import bytes_needed

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

folder, capacity = Path(sys.argv[1]), int(sys.argv[2])
replay = Replay(4, capacity, device=torch.device("cpu"), selectors={"uniform": 1.0})
state = torch.load(folder / "state.pt", weights_only=True)
before = memory("VmRSS:")
lost = Archive(folder / "saved").load(replay, state)
peak, now = memory("VmHWM:") - before, memory("VmRSS:") - before
image, step = replay.columns["image"], replay.columns["step"]
right = bool((image[:, 0, 0, 0, 0] == step[:, 0] // 100 % 251).all()) and bool(replay.columns["deter"].any())
size = bytes_needed(replay.layout, capacity, 4)
print(json.dumps({"lost": lost, "size": size, "peak": peak, "now": now, "right": right, "held": len(replay)}))
"""


@pytest.mark.skipif(
    not STATUS.is_file() or "VmHWM:" not in STATUS.read_text(), reason="/proc does not tell the peak of the memory"
)
def test_a_resumed_run_takes_little_more_memory_than_its_replay(tmp_path):
    capacity = 14_000
    for script in (SAVE, LOAD):
        words = [sys.executable, "-c", script, str(tmp_path), str(capacity)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert (found["lost"], found["held"], found["right"]) == (0, capacity, True)
    assert found["size"] > 200e6 and found["now"] > 0.8 * found["size"]  # all of it lies in memory
    assert found["peak"] < 1.5 * found["size"], found
