"""Dreamer beside sheeprl's newest one on the same windows: losses of rows that are learned from, and of others.

    python benchmarks/same_rows.py --sheeprl SHEEPRL/bin/python [--task dmc_walker_walk] [--updates 1000]

SHEEPRL is a virtual environment of its own with sheeprl in it. An agent that has learned nothing plays some episodes;
both then learn from the same windows in the same order at the size of `1m`, each on one thread, and every 250 updates
tell the losses of 256 windows out of what they learn from and of 256 out of rows that were kept back.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from windows import LENGTH, LR, WARMUP, Rows, Windows

import reverie
from reverie.agents.dreamer import Dreamer
from reverie.build import make_parts
from reverie.data.rows import Batch

ROWS = 3000
EVERY = 250

Told = dict[str, dict[str, float]]


def made(task: str) -> tuple[Dreamer, Rows]:
    """A new agent of a task whose observations are numbers, and rows (T, N, ...) that it played."""
    config = reverie.configure(
        "dmc_proprio", "1m", task=task, device="cpu", run__threads=1, envs__count=4, replay__length=LENGTH,
        replay__start="zeros", optim__model__lr=LR, optim__model__warmup=WARMUP, world__precision="float32",
    )  # fmt: skip
    parts = make_parts(config)
    try:
        rows = parts.collector.collect(ROWS).rows
    finally:
        parts.close()
    assert isinstance(parts.agent, Dreamer)
    return parts.agent, {name: value[:ROWS].numpy().copy() for name, value in rows.items()}


def tensors(rows: Rows) -> Batch:
    """Rows as tensors."""
    return {name: torch.as_tensor(value) for name, value in rows.items()}


@torch.no_grad()
def told(agent: Dreamer, rows: Rows) -> dict[str, float]:
    """The losses of windows."""
    generator = torch.Generator().manual_seed(0)
    _, losses, metrics = agent.world.losses(agent.window(tensors(rows)), generator)
    observed = sum(loss.mean() for name, loss in losses.items() if name not in ("reward", "cont", "dyn", "rep"))
    found = {"kl": metrics["kl"], "observation": observed, "reward": losses["reward"].mean()}
    return {name: float(value) for name, value in found.items()}


def learned(agent: Dreamer, windows: Windows, updates: int) -> list[Told]:
    """What an agent tells every so many updates."""
    found, looked_at = [], windows.looked_at()
    for number, rows in zip(range(1, updates + 1), windows.batches()):
        agent.learn_replay(tensors(rows))
        if number % EVERY == 0:
            found.append({part: told(agent, each) for part, each in looked_at.items()})
            print(number, found[-1], flush=True)
    return found


def main() -> None:
    """Let both learn, and print what they told side by side."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--sheeprl", required=True)
    parser.add_argument("--task", default="dmc_walker_walk")
    parser.add_argument("--updates", type=int, default=1000)
    given = parser.parse_args()
    if given.updates < EVERY:
        parser.error(f"--updates {given.updates}: nothing is told before {EVERY}")
    torch.set_num_threads(1)
    agent, rows = made(given.task)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        seen = [rows[key].reshape(*rows["reward"].shape, -1) for key in agent.keys if rows[key].dtype == np.float32]
        np.savez(path, vector=np.concatenate(seen, -1), **rows)
        words = [given.sheeprl, Path(__file__).with_name("same_rows_peer.py"), path, str(given.updates), str(EVERY)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as peer:
            ours = learned(agent, Windows(path), given.updates)
            said, _ = peer.communicate()
    if peer.returncode:
        sys.exit("sheeprl's side has failed")
    theirs = json.loads(said.splitlines()[-1])
    print("| updates | " + " | ".join(f"{name}: ours | sheeprl" for name in ours[0]["learned"]) + " |")
    for number, (here, there) in enumerate(zip(ours, theirs), 1):
        cells = [f"{each['learned'][name]:.2f} / {each['kept'][name]:.2f}" for name in here["learned"]
                 for each in (here, there)]  # fmt: skip
        print(f"| {number * EVERY:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
