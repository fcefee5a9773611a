"""Atari Pong by PPO, 128 steps of each environment, NatureCNN, 4 epochs of 4 minibatches: steps/s, end to end.

    python benchmarks/pong.py [--envs 8] [--groups 1] [--device cpu|cuda] [--peers sb3] [--repeats 3] [--seconds 5]
                              [--json FILE]

Beside it Stable-Baselines3 with the same settings, in one of these forms: `sb3` with its own environments in processes
(SubprocVecEnv), `sb3-serial` with the same in turn (DummyVecEnv), `sb3-ale` with ALE's vector environment, as we have.
Each repeat is a process of its own that warms up and then times whole rounds; the sides alternate. Where there is no
OpenCV, environments of Stable-Baselines3 pick pixels from gray screens instead of resizing, which takes less time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROLLOUT = 128
PARTS = 4
WARMUP = 3
"""Rounds before time counts: libraries choose their kernels and GPU graphs are captured in them."""


def run_reverie(words: argparse.Namespace) -> float:
    """Steps a second of whole rounds, logging included."""
    import torch

    import reverie
    from reverie.build import make_parts, make_run
    from reverie.training.folder import prepare

    with tempfile.TemporaryDirectory() as folder:
        config = reverie.configure(
            "atari_ppo",
            device=words.device,
            logdir=folder,
            envs__count=words.envs,
            envs__groups=words.groups,
            ppo__minibatch=words.envs * ROLLOUT // PARTS,
            run__eval_every=0,
            run__eval_at_end=False,
            log__tensorboard=False,
        )
        parts = make_parts(config)
        run = make_run(config, prepare(config, False), parts, resume=False, quiet=True)
        wait = torch.cuda.synchronize if words.device == "cuda" else lambda: None
        for _ in range(WARMUP):
            run.round()
        wait()
        before, start = run.counters.step, time.perf_counter()
        while time.perf_counter() - start < words.seconds:
            run.round()
            run.log(run.counters.step)
        wait()
        rate = (run.counters.step - before) / (time.perf_counter() - start)
        run.logger.close()
        parts.close()
    return rate


def game(**kwargs: Any) -> Any:
    """The game as it is; worker processes must register it for themselves."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    return gymnasium.make("PongNoFrameskip-v4", **kwargs)


def pixels_env(seed: int) -> Any:
    """A game with Stable-Baselines3's wrappers but for the one that needs OpenCV."""
    import gymnasium
    from stable_baselines3.common import atari_wrappers as wrappers
    from stable_baselines3.common.monitor import Monitor

    rows, columns = (np.arange(84) * side // 84 for side in (210, 160))
    env: Any = Monitor(game(obs_type="grayscale"))
    env = wrappers.NoopResetEnv(env, 30)
    env = wrappers.EpisodicLifeEnv(wrappers.MaxAndSkipEnv(env, 4))
    env = wrappers.FireResetEnv(env)
    space = gymnasium.spaces.Box(0, 255, (84, 84, 1), np.uint8)
    env = gymnasium.wrappers.TransformObservation(env, lambda screen: screen[rows][:, columns, None], space)
    env.action_space.seed(seed)
    return wrappers.ClipRewardEnv(env)


def own_envs(count: int, apart: bool) -> Any:
    """The environments that Stable-Baselines3 makes."""
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    kind = SubprocVecEnv if apart else DummyVecEnv
    if importlib.util.find_spec("cv2"):
        return VecFrameStack(make_atari_env(game, n_envs=count, seed=0, vec_env_cls=kind), 4)
    return VecFrameStack(kind([partial(pixels_env, seed) for seed in range(count)]), 4)


def ale_envs(count: int) -> Any:
    """ALE's vector environment in the form that Stable-Baselines3 takes."""
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode
    from stable_baselines3.common.vec_env import VecEnv

    class Native(VecEnv):
        def __init__(self) -> None:
            self.envs = AtariVectorEnv("pong", num_envs=count, autoreset_mode=AutoresetMode.SAME_STEP)
            super().__init__(count, self.envs.single_observation_space, self.envs.single_action_space)

        def reset(self) -> np.ndarray:
            return self.envs.reset(seed=0)[0]

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = actions

        def step_wait(self) -> tuple[Any, ...]:
            seen, reward, ended, cut, _ = self.envs.step(self.actions)
            return seen, reward, ended | cut, [{} for _ in range(count)]

        def get_attr(self, name: str, indices: Any = None) -> list[Any]:
            return [None] * count

        def env_is_wrapped(self, wrapper: Any, indices: Any = None) -> list[bool]:
            return [False] * count

        def close(self) -> None: ...
        def set_attr(self, name: str, value: Any, indices: Any = None) -> None: ...
        def env_method(self, name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any: ...

    return Native()


def run_sb3(words: argparse.Namespace) -> float:
    """Steps a second of whole rounds of Stable-Baselines3."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    starts: list[float] = []

    class Clock(BaseCallback):
        def _on_rollout_start(self) -> None:
            starts.append(time.perf_counter())

        def _on_step(self) -> bool:
            return len(starts) <= WARMUP + 1 or starts[-1] - starts[WARMUP] < words.seconds

    envs = ale_envs(words.envs) if words.side == "sb3-ale" else own_envs(words.envs, words.side == "sb3")
    model = PPO(
        "CnnPolicy",
        envs,
        n_steps=ROLLOUT,
        n_epochs=4,
        batch_size=words.envs * ROLLOUT // PARTS,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
        device=words.device,
    )
    model.learn(10**9, callback=Clock())
    envs.close()
    rounds = len(starts) - 1 - WARMUP
    return rounds * words.envs * ROLLOUT / (starts[-1] - starts[WARMUP])


def measured(side: str) -> float:
    """The rate of one side, in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--side", side]
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    rate = float(json.loads(done.stdout.splitlines()[-1]))
    print(f"{side:10} {rate:8,.0f} steps/s", flush=True)
    return rate


def parsed() -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--groups", type=int, default=1, help="ours: groups of environments that take turns")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--peers", nargs="+", choices=("sb3", "sb3-serial", "sb3-ale"), default=["sb3"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long rounds are timed in each repeat")
    parser.add_argument("--json", type=Path, help="where to leave the figures")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    words = parsed()
    if words.side:
        print(json.dumps((run_reverie if words.side == "reverie" else run_sb3)(words)))
        return
    rates: dict[str, list[float]] = {name: [] for name in ("reverie", *words.peers)}
    for _ in range(words.repeats):
        for name in rates:
            rates[name].append(measured(name))
        if words.json:
            about = {"envs": words.envs, "groups": words.groups, "device": words.device}
            words.json.write_text(json.dumps(about | {"steps_per_second": rates}))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name in words.peers:
        print(f"reverie {medians['reverie']:,.0f}, {name} {medians[name]:,.0f} steps/s (medians): "
              f"{medians['reverie'] / medians[name]:.2f} times")  # fmt: skip


if __name__ == "__main__":
    main()
