"""Threads that share rows."""

import os
import subprocess
import sys

import pytest

from reverie.nn.native.machine import Manner, Task
from reverie.nn.native.team import share_out

pytestmark = pytest.mark.usefixtures("c_compiler")

FORKED = """
import os
import signal
import torch
from reverie.nn.conv import TRUNKS, Trunk
from reverie.nn.native.convolved import Convolved
torch.set_num_threads(2)
convolved = Convolved(Trunk((10, 10, 4), TRUNKS["small"], 8))
image = torch.randint(0, 256, (8, 10, 10, 4), dtype=torch.uint8)
with torch.no_grad():
    found = convolved(image)
child = os.fork()
if not child:
    signal.alarm(60)
    with torch.no_grad():
        os._exit(0 if torch.equal(convolved(image), found) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_forked_from_one_that_has_threads():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "0", done.stderr


KEPT = """
import os
import torch
from reverie.nn.conv import TRUNKS, Trunk
from reverie.nn.native.convolved import Convolved
torch.set_num_threads(4)
convolved = Convolved(Trunk((10, 10, 4), TRUNKS["small"], 8))
image, numbers = torch.zeros(4, 10, 10, 4, dtype=torch.uint8), torch.zeros(1 << 20)
seen = set()
for _ in range(20):
    numbers.add_(1)
    with torch.no_grad():
        convolved(image)  # two shares for four threads
    seen.update(os.listdir("/proc/self/task"))
print(len(seen) - len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are listed in /proc")
def test_threads_that_find_nothing_to_do_stay():
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "0", done.stdout + done.stderr


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
def test_where_there_is_no_memory_it_is_said(threads):
    endless = Manner(width=1 << 50, steps=1, backwards=0, most=1)
    with pytest.raises(MemoryError, match="no memory"):
        share_out("run_task", Task(None, 0, endless), 4, 2)
