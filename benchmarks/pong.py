"""Atari Pong by PPO, 8 x 128 steps, NatureCNN, 4 epochs of 4 minibatches: end-to-end steps/s beside Stable-Baselines3.

    python benchmarks/pong.py [repeats] [--ale-vector]

Each repeat is a process of its own that warms up for one round and times the next ones; the two alternate.
Stable-Baselines3 has the environments its own `make_atari_env` makes. With `--ale-vector` it is given ALE's vector
environment as we are: then the two differ in learning and acting alone, and it needs no OpenCV.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

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


def own_envs() -> Any:
    import ale_py
    import gymnasium
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    return VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=8, seed=0), 4)


def ale_envs() -> Any:
    import numpy as np
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode
    from stable_baselines3.common.vec_env import VecEnv

    class Native(VecEnv):
        """ALE's vector environment in the form that Stable-Baselines3 takes."""

        def __init__(self) -> None:
            self.envs = AtariVectorEnv("pong", num_envs=8, autoreset_mode=AutoresetMode.SAME_STEP)
            super().__init__(8, self.envs.single_observation_space, self.envs.single_action_space)

        def reset(self) -> np.ndarray:
            return self.envs.reset(seed=0)[0]

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = actions

        def step_wait(self) -> tuple[Any, ...]:
            seen, reward, ended, cut, _ = self.envs.step(self.actions)
            return seen, reward, ended | cut, [{} for _ in range(8)]

        def get_attr(self, name: str, indices: Any = None) -> list[Any]:
            return [None] * 8

        def env_is_wrapped(self, wrapper: Any, indices: Any = None) -> list[bool]:
            return [False] * 8

        def close(self) -> None: ...
        def set_attr(self, name: str, value: Any, indices: Any = None) -> None: ...
        def env_method(self, name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any: ...

    return Native()


def run_sb3(envs: Any) -> float:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    starts: list[float] = []

    class Clock(BaseCallback):
        def _on_rollout_start(self) -> None:
            starts.append(time.perf_counter())

        def _on_step(self) -> bool:
            return True

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


RUNNERS = {"reverie": run_reverie, "sb3": lambda: run_sb3(own_envs()), "sb3-ale": lambda: run_sb3(ale_envs())}


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1] in RUNNERS:
        print(json.dumps(RUNNERS[sys.argv[1]]()))
        return
    peer = "sb3-ale" if "--ale-vector" in sys.argv else "sb3"
    repeats = next((int(word) for word in sys.argv[1:] if word.isdigit()), 5)
    rates: dict[str, list[float]] = {"reverie": [], peer: []}
    for _ in range(repeats):
        for name in rates:
            command = [sys.executable, __file__, name]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            rates[name].append(json.loads(output.splitlines()[-1]))
    for name, values in rates.items():
        print(f"{name:8} steps/s: median {statistics.median(values):,.0f}, all {[round(value) for value in values]}")
    print(f"ratio (ours / SB3): {statistics.median(rates['reverie']) / statistics.median(rates[peer]):.2f}")


if __name__ == "__main__":
    main()
