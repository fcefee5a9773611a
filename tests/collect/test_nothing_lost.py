"""Twenty generators and five learners are killed, and nothing that was whole is lost."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

import reverie
from reverie.config import store
from reverie.config.options import replaced
from reverie.data.episodes import FolderStore
from reverie.training.lock import in_use
from waiting import until

LEARNERS, GENERATORS = 5, 4
OPTIONS = {"task": "toy_count", "envs.count": 4, "collect.mode": "process", "collect.generators": 2, "collect.rows": 4,
           "envs.max_restarts": 50, "replay.ratio": 1.0, "run.steps": 10_000_000, "run.eval_every": 0,
           "run.eval_at_end": False, "run.save_every": 40, "store.write": "folder", "log.tensorboard": False,
           "log.every": 8}  # fmt: skip


def start(folder):
    command = [sys.executable, "-m", "reverie", "train", "--logdir", str(folder)]
    if (folder / "config.yaml").exists():
        command += ["--resume"]
    else:
        command += ["--configs", "dreamer_v3", "debug", *(f"--{name}={value}" for name, value in OPTIONS.items())]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def parents():
    """The parent of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def generators(learner):
    """The processes that a child of the learner has forked."""
    of = parents()
    return sorted(pid for pid, parent in of.items() if of.get(parent) == learner)


def lines(folder):
    path = folder / "metrics.jsonl"
    texts = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(text) for text in texts if text.endswith("\n")]


def last_step(folder):
    found = lines(folder)
    return found[-1]["step"] if found else 0


def saved_step(folder):
    path = folder / "checkpoints" / "latest.pt"
    return torch.load(path, weights_only=True)["counters"]["step"] if path.exists() else 0


def kill_some(folder, learner, chance, reached):
    """Kill generators of a learner, each when another has taken the place of the one before; then wait for a save."""
    until(lambda: in_use(folder) and generators(learner.pid) and last_step(folder) > reached)
    assert saved_step(folder) >= reached  # it went on, and did not begin anew
    for _ in range(GENERATORS):
        victim = chance.choice(until(lambda: generators(learner.pid)))
        time.sleep(chance.random() * 0.2)
        os.kill(victim, signal.SIGKILL)
        until(lambda victim=victim: victim not in generators(learner.pid))  # a dead one stays until the learner sees it
        step = last_step(folder)
        until(lambda step=step: last_step(folder) > step + 32)  # more than lay ready
    latest = folder / "checkpoints" / "latest.pt"
    before = latest.stat().st_mtime_ns if latest.exists() else 0
    until(lambda: latest.exists() and latest.stat().st_mtime_ns > before)
    time.sleep(chance.random() * 0.2)


def test_kills_lose_nothing_that_was_whole(tmp_path):
    folder, chance = tmp_path / "run", random.Random(0)
    reached = 0
    for _ in range(LEARNERS):
        learner = start(folder)
        try:
            kill_some(folder, learner, chance, reached)
        finally:
            learner.kill()
            learner.wait()
        reached = saved_step(folder)
    until(lambda: not in_use(folder))
    outcome = reverie.train(replaced(store.load(folder), {"run.steps": reached + 60}), resume=True, quiet=True)
    assert reached + 60 <= outcome.step < reached + 100
    steps = [line["step"] for line in lines(folder)]
    assert steps == sorted(steps) and steps[-1] == outcome.step
    assert_episodes_whole(FolderStore(folder / "episodes"))


def assert_episodes_whole(episodes):
    names = episodes.names()
    assert len(names) > 20
    for name in names:
        episode = episodes.read(name)
        assert episode is not None and episode["vector"][:, 0].tolist() == list(range(11)), name
        assert np.unique(episode["vector"][:, 1]).size == 1
    assert not episodes.damaged
