"""Atari Pong by PPO, 8 x 128 steps, NatureCNN, 4 epochs of 4 minibatches: end-to-end steps/s beside Stable-Baselines3.

    python benchmarks/pong.py [repeats]

Each repeat is a process of its own that warms up for one round and times the next ones; the two alternate.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 4
STEPS = 8 * 128


def run_reverie() -> float:
    import reverie
    from reverie.build import make_parts, make_run
    from reverie.training.folder import prepare

    with tempfile.TemporaryDirectory() as folder:
        config = reverie.configure(
            "atari_ppo", logdir=folder, run__eval_every=0, run__eval_at_end=False, log__tensorboard=False
        )
        parts = make_parts(config)
        run = make_run(config, prepare(config, False), parts, resume=False, quiet=True)
        run.round()
        before, start = run.counters.step, time.perf_counter()
        for _ in range(ROUNDS):
            run.round()
            run.log(run.counters.step)
        seconds, steps = time.perf_counter() - start, run.counters.step - before
        run.logger.close()
        parts.close()
    return steps / seconds


def run_sb3() -> float:
    import ale_py
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    starts: list[float] = []

    class Clock(BaseCallback):
        def _on_rollout_start(self) -> None:
            starts.append(time.perf_counter())

        def _on_step(self) -> bool:
            return True

    envs = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=8, seed=0), 4)
    model = PPO(
        "CnnPolicy",
        envs,
        n_steps=128,
        n_epochs=4,
        batch_size=256,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
        device="cpu",
    )
    model.learn(STEPS * (ROUNDS + 2), callback=Clock())
    return STEPS * ROUNDS / (starts[ROUNDS + 1] - starts[1])


RUNNERS = {"reverie": run_reverie, "sb3": run_sb3}


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1] in RUNNERS:
        print(json.dumps(RUNNERS[sys.argv[1]]()))
        return
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rates: dict[str, list[float]] = {name: [] for name in RUNNERS}
    for _ in range(repeats):
        for name in RUNNERS:
            command = [sys.executable, __file__, name]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            rates[name].append(json.loads(output.splitlines()[-1]))
    for name, values in rates.items():
        print(f"{name:8} steps/s: median {statistics.median(values):,.0f}, all {[round(value) for value in values]}")
    print(f"ratio (ours / SB3): {statistics.median(rates['reverie']) / statistics.median(rates['sb3']):.2f}")


if __name__ == "__main__":
    main()
