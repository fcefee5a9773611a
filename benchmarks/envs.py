"""Steps per second of our vector environments beside Gymnasium's AsyncVectorEnv, on the same environments in one run.

python benchmarks/envs.py [--seconds 2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, VectorEnv

from reverie.config.schema import EnvConfig, EnvsConfig
from reverie.envs.process import ProcessVector
from reverie.envs.serial import SerialVector
from reverie.envs.vector import Maker
from reverie.envs.wrappers import standard


class Pictures(gymnasium.Env):
    """Shows one of a few ready images: next to no work of its own, so that moving images is what is measured."""

    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)
    images = np.random.default_rng(0).integers(0, 256, (16, 64, 64, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """The first image."""
        super().reset(seed=seed)
        self.steps = 0
        return self.images[0], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """The next image."""
        self.steps += 1
        return self.images[self.steps % 16], 1.0, False, self.steps == 500, {}


def pictures() -> gymnasium.Env:
    """An image environment in the standard form."""
    return standard(Pictures(), EnvConfig(), 1, frozenset())


CASES: dict[str, tuple[Callable[[], gymnasium.Env], int]] = {
    "32 CartPole": (Maker("gym_CartPole-v1", EnvConfig()), 32),
    "8 Pendulum": (Maker("gym_Pendulum-v1", EnvConfig()), 8),
    "8 images 64x64x3": (pictures, 8),
}


def steps_per_second(vector: VectorEnv, seconds: float) -> float:
    """Steps of single environments per second, with random actions drawn beforehand."""
    actions = [vector.action_space.sample() for _ in range(64)]
    for action in actions[:20]:
        vector.step(action)
    begin, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < seconds:
        for action in actions:
            vector.step(action)
        count += len(actions)
    return count * vector.num_envs / passed


def measure(make: Callable[[], gymnasium.Env], count: int, seconds: float, rounds: int) -> dict[str, float]:
    """The best of several rounds for each kind of vector environment, taken in turns."""
    settings = EnvsConfig(count=count)
    vectors: dict[str, VectorEnv] = {
        "async": AsyncVectorEnv([make] * count),
        "process": ProcessVector([make] * count, 0, settings),
        "serial": SerialVector([make] * count, 0, settings),
    }
    best = dict.fromkeys(vectors, 0.0)
    for vector in vectors.values():
        vector.action_space.seed(0)
        vector.reset(seed=0)
    for _ in range(rounds):
        for name, vector in vectors.items():
            best[name] = max(best[name], steps_per_second(vector, seconds))
    for vector in vectors.values():
        vector.close()
    return best


def main() -> None:
    """Print a table of steps per second and of ratios to AsyncVectorEnv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, the best counts")
    options = parser.parse_args()
    columns = f"{'async/s':>10} {'process/s':>10} {'serial/s':>10} {'process/async':>14} {'serial/async':>13}"
    print(f"{'environments':18} {columns}")
    for name, (make, count) in CASES.items():
        best = measure(make, count, options.seconds, options.rounds)
        ratios = best["process"] / best["async"], best["serial"] / best["async"]
        rates = f"{best['async']:>10.0f} {best['process']:>10.0f} {best['serial']:>10.0f}"
        print(f"{name:18} {rates} {ratios[0]:>14.1f} {ratios[1]:>13.1f}")


if __name__ == "__main__":
    main()
