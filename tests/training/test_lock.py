"""Who works in a folder: one run at a time, and looking does no harm."""

import fcntl
import subprocess
import sys
import threading

import pytest

from reverie.config.errors import UserError
from reverie.training.lock import LOCK, Lock, in_use


def test_a_folder_in_use_is_refused_and_free_again_when_its_owner_dies(tmp_path):
    code = f"""
import sys, time
from pathlib import Path
from reverie.training.lock import Lock
lock = Lock(Path({str(tmp_path)!r}))
lock.__enter__()
print("held", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"in use by process {owner.pid}"), Lock(tmp_path):
            pass
        owner.kill()
        owner.wait()
        with Lock(tmp_path):
            pass


def test_whoever_looks_whether_a_folder_is_in_use_keeps_no_run_from_it(tmp_path):
    with open(tmp_path / LOCK, "w") as look:
        fcntl.flock(look, fcntl.LOCK_SH)  # what `in_use` has for a moment
        ends = threading.Timer(0.3, fcntl.flock, (look, fcntl.LOCK_UN))
        ends.start()
        with Lock(tmp_path):
            assert in_use(tmp_path)
        ends.join()
    assert not in_use(tmp_path)
