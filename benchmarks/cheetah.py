"""HalfCheetah by PPO beside Stable-Baselines3, both with the settings of the preset `continuous_ppo`.

    python benchmarks/cheetah.py [steps] [seeds]

Prints, at tenths of the run, the mean return of the last 20 training episodes of each, over the seeds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MARKS = 10
RECENT = 20


def run_reverie(steps: int, seed: int) -> list[float]:
    import reverie

    with tempfile.TemporaryDirectory() as folder:
        config = reverie.configure(
            "continuous_ppo",
            logdir=f"{folder}/run",
            seed=seed,
            run__steps=steps,
            run__eval_every=0,
            run__eval_at_end=False,
            log__every=1,
            log__tensorboard=False,
        )
        reverie.train(config, quiet=True)
        lines = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text().splitlines()]
    # eight environments of 1,000 steps finish together: each line that has a return holds eight of them
    episodes = [(line["step"], line["episode/return"]) for line in lines if "episode/return" in line for _ in range(8)]
    return at_marks(episodes, steps)


def run_sb3(steps: int, seed: int) -> list[float]:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    episodes: list[tuple[int, float]] = []

    class Scores(BaseCallback):
        def _on_step(self) -> bool:
            found = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
            episodes.extend((self.num_timesteps, float(score)) for score in found)
            return True

    envs = VecNormalize(make_vec_env("HalfCheetah-v5", n_envs=8, seed=seed))
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=256,
        batch_size=64,
        n_epochs=10,
        learning_rate=lambda left: left * 3e-4,
        ent_coef=0.0,
        seed=seed,
        device="cpu",
    )
    model.learn(steps, callback=Scores())
    return at_marks(episodes, steps)


def at_marks(episodes: list[tuple[int, float]], steps: int) -> list[float]:
    """The mean of the last episodes before each tenth of the run."""
    means = []
    for mark in range(1, MARKS + 1):
        done = [score for step, score in episodes if step <= steps * mark / MARKS]
        means.append(statistics.fmean(done[-RECENT:]) if done else float("nan"))
    return means


RUNNERS = {"reverie": run_reverie, "sb3": run_sb3}


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] in RUNNERS:
        print(json.dumps(RUNNERS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))))
        return
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for name in RUNNERS:
        curves = []
        for seed in range(seeds):
            command = [sys.executable, __file__, name, str(steps), str(seed)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            curves.append(json.loads(output.splitlines()[-1]))
        means = [round(statistics.fmean(values), 0) for values in zip(*curves)]
        print(f"{name:8} mean return at tenths of {steps:,} steps: {means}", flush=True)


if __name__ == "__main__":
    main()
