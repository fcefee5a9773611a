"""PPO on CartPole from Python: a preset, one option changed, a look at what was written, and the agent at work.

    python examples/cartpole.py [steps]

The command line's version of the first half is `reverie train --configs cartpole_ppo`, of the second
`reverie eval --logdir DIR`. examples/dreamer.py has the same with a world model.
"""

from __future__ import annotations

import json
import sys

import gymnasium

import reverie


def main(steps: int = 30_000) -> None:
    """Train, read the log, and play ten episodes in a plain Gymnasium environment."""
    # `eval_videos=0`: evaluations without a video, which would take a few seconds to draw.
    config = reverie.configure("cartpole_ppo", run__steps=steps, run__eval_videos=0, seed=1)
    outcome = reverie.train(config)

    # metrics.jsonl holds one object a line. Each has the step; not every metric is new in every line.
    print("\n   step  return of the episodes since the line before")
    with open(outcome.logdir / "metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    for line in lines[:: max(1, len(lines) // 8)]:
        if "episode/return" in line:
            print(f"{line['step']:7,}  {line['episode/return']:6.1f}")

    # The checkpoint with the best evaluation, on its own: this part needs nothing of the training above but its folder.
    agent = reverie.load(outcome.logdir, checkpoint="best")
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
    print(f"\nten episodes: {', '.join(f'{score:.0f}' for score in scores)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
