"""Dreamer on CartPole from Python: train, see how well it dreams, and use an agent that remembers.

    python examples/dreamer.py [steps]

The command line's version is `reverie train`, then `reverie dream --logdir DIR` and `reverie eval --logdir DIR`. The
10,000 steps that it needs to balance the pole take some minutes.
"""

from __future__ import annotations

import json
import sys

import gymnasium

import reverie


def main(steps: int = 10_000) -> None:
    """Train, read what the log says about dreams, and play three episodes in a plain Gymnasium environment."""
    # The preset `cartpole` is `dreamer_v3` with small networks: 96 rows are replayed for each row collected, so most of
    # the time goes into updates. `eval_every` is when it looks at itself, awake and dreaming.
    config = reverie.configure("cartpole", run__steps=steps, run__eval_every=max(1, steps // 4), run__eval_videos=0)
    outcome = reverie.train(config)

    # The world model sees five rows of a window and goes on from there by itself, told the actions alone. What it
    # leaves unexplained of the rows that followed: 0 is perfect, 1 no better than their mean.
    print("\n   step  evaluation  error of dreams")
    with open(outcome.logdir / "metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        if "eval/mean_return" in line and "world/open_loop_error" in line:
            print(f"{line['step']:7,}  {line['eval/mean_return']:10.1f}  {line['world/open_loop_error']:15.2f}")

    # It chooses by what it has seen since the episode began, not by one observation: say when a new one begins.
    agent = reverie.load(outcome.logdir)
    env = gymnasium.make("CartPole-v1")
    for episode in range(3):
        observation, _ = env.reset(seed=episode)
        agent.reset()
        score, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            score += float(reward)
            ended = terminated or truncated
        print(f"episode {episode + 1}: return {score:.0f}")
    env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
