"""Threads that share rows."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("c_compiler")

FORKED = """
import os
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
    with torch.no_grad():
        os._exit(0 if torch.equal(convolved(image), found) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_forked_from_one_that_has_threads():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "0", done.stderr
