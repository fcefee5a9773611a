"""Learning from files: PPO lives through CartPole and keeps its episodes, a Dreamer learns from them alone.

    python examples/offline.py [steps]

Episodes of one agent are experience for another, whatever it is: a world model does not mind who acted. So data can be
collected once, by anybody, and learned from as often as one likes, without an environment. docs/operations.md has the
format of the files; the same on the command line is

    reverie train --configs cartpole_ppo --store.write folder --logdir logdir/lived
    reverie train --configs cartpole --store.read logdir/lived/episodes --store.live False --logdir logdir/read
"""

from __future__ import annotations

import sys

import numpy as np

import reverie
from reverie.data.episodes import FolderStore


def main(steps: int = 10_000) -> None:
    """Collect with PPO, look into the files, learn from them."""
    # PPO at the beginning of its way: clumsy episodes and better ones, which is what a model should know, too.
    config = reverie.configure("cartpole_ppo", run__steps=steps, run__eval_videos=0, store__write="folder")
    lived = reverie.train(config, quiet=True)
    store = FolderStore(lived.logdir / "episodes")
    lengths = [len(store.read(name)["reward"]) - 1 for name in store.names()]  # the first row is not a step yet
    tenth = max(1, len(lengths) // 10)
    first, last = np.mean(lengths[:tenth]), np.mean(lengths[-tenth:])
    print(f"PPO kept {len(lengths)} episodes of {sum(lengths):,} steps in {store.folder}")
    print(f"in the first tenth of them the pole stood for {first:.0f} steps, in the last for {last:.0f}")

    # A file is an .npz with one array for each column of rows, from the first observation to the last.
    episode = store.read(store.names()[-1])
    print("an episode:", ", ".join(f"{name} {column.shape}" for name, column in episode.items()))

    # `store.live False`: nothing is collected, the environment is there for the evaluation alone. Steps are then what
    # updates are due for: 2,400 make 900 updates, a minute or two of them.
    config = reverie.configure(
        "cartpole",
        run__steps=steps * 24 // 100,
        run__eval_every=0,
        run__eval_videos=0,
        replay__warmup=256,
        store__read=str(store.folder),
        store__live=False,
    )
    learned = reverie.train(config)
    print(f"\na Dreamer that never acted keeps the pole up for {learned.evaluation['mean_return']:.0f} steps")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
