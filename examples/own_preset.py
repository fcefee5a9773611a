"""A preset of your own: what it changes, whether it pays, and how presets stack.

    python examples/own_preset.py [steps]

A preset is a YAML file with options, such as own_preset.yaml beside this program. On the command line it is used like
those that are built in: `reverie train --configs examples/own_preset.yaml --seed 3`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import reverie
from reverie.config.options import flattened

MINE = str(Path(__file__).with_name("own_preset.yaml"))


def main(steps: int = 30_000) -> None:
    """Show the difference to the preset below, then train with both."""
    # Presets are laid over one another from left to right, and options over all of them. Nothing else happens: what
    # comes out is a plain, immutable object with every option in it.
    theirs, mine = (reverie.configure(preset, run__steps=steps, seed=3) for preset in ("cartpole_ppo", MINE))
    before, after = flattened(theirs), flattened(mine)
    for name in before:
        if before[name] != after[name]:
            print(f"{name:18} {before[name]!s:>8} -> {after[name]}")

    # One seed is an anecdote. For evidence: reverie sweep --configs cartpole_ppo --grid seed=0,1,2,3 ppo.lr=4e-3,2e-3
    for name, config in (("theirs", theirs), ("mine", mine)):
        outcome = reverie.train(config, quiet=True)
        print(f"{name:6} {outcome.evaluation['mean_return']:6.1f} after {outcome.step:,} steps: {outcome.logdir}")

    # The run folder keeps all options, resolved. So a run can be repeated when the preset has long been changed:
    print(f"again: reverie train --configs {outcome.logdir}/config.yaml --logdir logdir/again")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
