"""An agent in three lines, then what else there is to know: PPO on CartPole.

    python examples/cartpole.py [steps]

The command line says `reverie train --configs cartpole_ppo`, then `reverie eval --logdir DIR`.
"""

from __future__ import annotations

import json
import sys

import gymnasium

import reverie


def main(steps: int = 30_000) -> None:
    """Train, play ten episodes in a plain Gymnasium environment, read the log."""
    # The three lines. A configuration is presets, then options, whose dots are two underscores in Python. Everything
    # about the run goes into a folder; the agent comes back from there, so that any program can load it, later too.
    outcome = reverie.train(reverie.configure("cartpole_ppo", run__steps=steps, run__eval_videos=0, seed=1))
    agent = reverie.load(outcome.logdir)
    print(f"\nthe action for a pole upright: {agent.act([0.0, 0.0, 0.0, 0.0])}")

    # `load` takes the checkpoint with the best evaluation. Agents that remember, such as Dreamer (preset `cartpole`),
    # have to be told when a new episode begins; those that do not, as PPO, do not mind.
    env = gymnasium.make("CartPole-v1")
    scores = []
    for episode in range(10):
        observation, _ = env.reset(seed=episode)
        agent.reset()
        score, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            score += float(reward)
            ended = terminated or truncated
        scores.append(score)
    env.close()
    print(f"ten episodes: {', '.join(f'{score:.0f}' for score in scores)}")

    # metrics.jsonl holds one object a line. Each has the step; not every metric is new in every line.
    print("\n   step  return of the episodes since the line before")
    with open(outcome.logdir / "metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    for line in lines[:: max(1, len(lines) // 8)]:
        if "episode/return" in line:
            print(f"{line['step']:7,}  {line['episode/return']:6.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
