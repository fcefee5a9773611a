import os
import subprocess
import sys

import numpy as np
import pytest

from required import package
from reverie.config.errors import UserError
from reverie.config.schema import LogConfig
from reverie.log.sinks.wandb import WandbSink
from waiting import until

package("wandb")


def test_an_offline_run_is_kept_in_the_folder_and_resumed(tmp_path):
    ids = []
    for step in (10, 5):  # a resumed run goes back in steps
        sink = WandbSink(tmp_path, LogConfig(wandb_mode="offline"), {"task": "toy_catch"})
        sink.write(step, {"train/loss": float(step)}, {"eval/v": np.zeros((2, 8, 8, 3), np.uint8)})
        sink.close()
        ids.append(sink.run_id)
    assert ids[0] == ids[1] == (tmp_path / "wandb_run.txt").read_text().strip()
    stored = f"wandb/offline-run-*/run-{ids[0]}.wandb"
    # its own process writes the end of a file a moment after it has said that all is done
    assert until(lambda: any(b"train/loss" in each.read_bytes() for each in tmp_path.glob(stored)))
    assert list((tmp_path / "wandb").glob("offline-run-*/files/media/videos/eval/*.gif"))


def test_the_users_own_mode_counts_unless_another_is_asked_for(tmp_path):
    code = """
import sys
from pathlib import Path
from reverie.config.schema import LogConfig
from reverie.log.sinks.wandb import WandbSink
WandbSink(Path(sys.argv[1]), LogConfig(), {}).close()
"""
    environment = dict(os.environ, WANDB_MODE="offline")  # read once per process, hence one of its own
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True, timeout=120)
    assert list((tmp_path / "wandb").glob("offline-run-*"))


def test_a_missing_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        UserError, match=r"pip install 'reverie\[wandb\]' \(in a checkout: pip install -e '\.\[wandb\]'\)"
    ):
        WandbSink(tmp_path, LogConfig(), {})
