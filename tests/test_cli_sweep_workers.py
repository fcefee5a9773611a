"""Sweeps that are interrupted or killed and go on, and several workers on one study."""

import json
import os
import signal
from pathlib import Path

from required import package
from reverie.config import store
from reverie.tools.records import run_folders
from waiting import until

package("optuna")


def awaits(process, number):
    """Whether a signal has been sent to a process that it has not taken yet."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (pending,) = (int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd"))
    return pending >> (number - 1) & 1


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path, short_trials, sweeping, trials_of):
    folder = tmp_path / "s"
    long = ["--run.steps", "6000", "--run.eval_every", "0", "--run.save_every", "500"]  # seconds: it is to be stopped
    sweep = sweeping(*short_trials, "--grid", "seed=0,1", *long, "--logdir", str(folder))
    until(lambda: (folder / "trial-0000/checkpoints/latest.pt").exists())
    trial = int((folder / "trial-0000/run.lock").read_text())
    os.kill(trial, signal.SIGSTOP)  # else it might end before the sweep has come to tell it
    try:
        sweep.send_signal(signal.SIGINT)
        until(lambda: awaits(trial, signal.SIGTERM))
    finally:
        os.kill(trial, signal.SIGCONT)
    printed, _ = sweep.communicate(timeout=60)
    assert sweep.returncode == 0
    assert "trial 0 was interrupted and is left for later" in printed and "sweep --resume --logdir" in printed
    stopped = json.loads((folder / "trial-0000/metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert stopped < 6_000

    sweep = sweeping("--resume", "--logdir", str(folder))
    second = folder / "trial-0002.log"  # the first trial has gone on as trial 1
    until(lambda: second.exists() and "weights" in second.read_text())
    sweep.kill()  # its trial saves and leaves, since it knows that its sweep died
    printed, _ = sweep.communicate()
    assert "trial 1 goes on: seed 0" in printed and "trial 1 ends" in printed

    printed, _ = sweeping("--resume", "--logdir", str(folder)).communicate(timeout=200)
    assert [(row["state"], row["seed"]) for row in trials_of(folder)] == [("complete", "0"), ("complete", "1")]
    steps = [json.loads(line)["step"] for line in (folder / "trial-0000/metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps)) and steps[-1] >= 6_000


def test_two_workers_share_one_study(tmp_path, short_trials, sweeping):
    storage = ["--storage", f"journal:{tmp_path}/study.log", "--study", "shared"]
    words = [*short_trials, "--grid", "seed=0,1,2", *storage]
    workers = [sweeping(*words, "--logdir", str(tmp_path / name)) for name in ("one", "two")]
    for worker in workers:
        printed, _ = worker.communicate(timeout=200)
        assert worker.returncode == 0, printed
    folders = run_folders(tmp_path / "one"), run_folders(tmp_path / "two")
    assert sorted(store.load(each).seed for both in folders for each in both) == [0, 1, 2]
    assert all(folders)
