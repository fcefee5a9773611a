"""CartPole to a mean return of 475 over 100 training episodes: Reverie beside Stable-Baselines3.

    python benchmarks/cartpole.py [seeds]

Runs alternate in one process tree, each in a process of its own with one torch thread; prints steps, seconds and the
ratio of medians.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time

GOAL = 475.0


def run_reverie(seed: int) -> dict[str, float]:
    import reverie

    with tempfile.TemporaryDirectory() as folder:
        config = reverie.configure(
            "cartpole_ppo",
            logdir=f"{folder}/run",
            seed=seed,
            run__stop_at=GOAL,
            run__eval_every=0,
            run__eval_at_end=False,
        )
        start = time.perf_counter()
        outcome = reverie.train(config, quiet=True)
        return {"steps": outcome.step, "seconds": time.perf_counter() - start, "reached": outcome.recent_return}


def run_sb3(seed: int) -> dict[str, float]:
    """rl-zoo3's settings for CartPole-v1: 8 x 32 steps, 20 epochs, linear schedules over 100,000 steps."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)

    class StopAtGoal(BaseCallback):
        def _on_step(self) -> bool:
            buffer = self.model.ep_info_buffer
            return len(buffer) < 100 or statistics.fmean(episode["r"] for episode in buffer) < GOAL

    envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        ent_coef=0.0,
        learning_rate=lambda left: left * 1e-3,
        clip_range=lambda left: left * 0.2,
        seed=seed,
        device="cpu",
    )
    start = time.perf_counter()
    model.learn(100_000, callback=StopAtGoal())
    scores = [episode["r"] for episode in model.ep_info_buffer]
    return {"steps": model.num_timesteps, "seconds": time.perf_counter() - start, "reached": statistics.fmean(scores)}


RUNNERS = {"reverie": run_reverie, "sb3": run_sb3}


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] in RUNNERS:
        print(json.dumps(RUNNERS[sys.argv[1]](int(sys.argv[2]))))
        return
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    results: dict[str, list[dict[str, float]]] = {name: [] for name in RUNNERS}
    for seed in range(seeds):
        for name in RUNNERS:
            command = [sys.executable, __file__, name, str(seed)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results[name].append(json.loads(output.splitlines()[-1]))
            print(name, seed, results[name][-1], flush=True)
    median = {name: {key: statistics.median(r[key] for r in runs) for key in runs[0]} for name, runs in results.items()}
    for name, figures in median.items():
        print(f"{name:8} median: {figures['steps']:,.0f} steps, {figures['seconds']:.1f} s")
    print(f"time ratio (ours / SB3): {median['reverie']['seconds'] / median['sb3']['seconds']:.2f}")


if __name__ == "__main__":
    main()
