"""An environment of your own: written in ten lines, trained in seconds, then used from another program.

    python examples/own_environment.py [steps]

The environment is any class with Gymnasium's interface. Reverie takes it by name, `module:Class`, because its worker
processes have to find it too: here the module is this very file. On the command line, in this folder, the same is

    reverie train --task own_environment:Corridor --env.time_limit 100 --run.steps 20_000
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np

import reverie


class Corridor(gymnasium.Env):
    """Ten cells in a row. The agent starts on the left and a door is on the right; each step costs a little."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """The first observation: one of the five cells on the left."""
        super().reset(seed=seed)  # seeds self.np_random, so that a run can be repeated and resumed exactly
        self.place = int(self.np_random.integers(5))
        return np.array([self.place], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One cell to the left (0) or to the right (1)."""
        self.place = max(0, self.place + 2 * int(action) - 1)
        there = self.place == 9
        return np.array([self.place], np.float32), float(there) - 0.1, there, False, {"success": there}


def main(steps: int = 20_000) -> None:
    """Train, load the agent back, and let it walk once."""
    # Presets come first, then options; dots in names of options are two underscores in Python. The corridor itself
    # never gives up, so that the time limit is what ends the walks of an agent that goes the wrong way.
    config = reverie.configure(
        task="own_environment:Corridor",
        run__steps=steps,
        env__time_limit=100,
        ppo__rollout=64,
        ppo__lr=1e-3,
    )
    outcome = reverie.train(config)
    print(f"\n{outcome.step:,} steps, {outcome.episodes:,} episodes, {outcome.elapsed:.1f} s")
    print(f"evaluation: {outcome.evaluation}")

    # What another program does: no training code, only observations in and actions out.
    agent = reverie.load(outcome.logdir)
    env = Corridor()
    observation, _ = env.reset(seed=1)
    agent.reset()  # a new episode begins
    for _ in range(20):
        action = agent.act(observation)
        print(f"cell {env.place}: go {'right' if action else 'left'} (expects a return of {agent.value:.2f})")
        observation, _, terminated, _, _ = env.step(action)
        if terminated:
            print("through the door")
            break


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
