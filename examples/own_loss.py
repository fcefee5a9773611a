"""A loss of your own, with a weight of its own: a Dreamer whose states must also tell which action led to them.

    python examples/own_loss.py [steps]

An agent is a torch module with a few methods (docs/extend.md), and those that are here can be built upon. Dreamer
gathers its losses by name, averages and adds them up; a further one needs a network, an optimiser for it, and a line.
`reverie.train` takes a class of your own and does the rest: collecting, replay, evaluations, checkpoints, logs.
"""

from __future__ import annotations

import json
import sys

import torch
from torch import nn
from torch.nn import functional as F

import reverie
from reverie.agents.dreamer import Dreamer
from reverie.agents.lesson import Told, stepper_of
from reverie.config.dreamer import OptimConfig
from reverie.nn.optim import Stepper
from reverie.world.model import Seen, Window


class Attentive(Dreamer):
    """A Dreamer with inverse dynamics: from a state and the next, say the action that led from one to the other.

    What an agent can influence must then be in its states, even if it is small in the picture and pays nothing.
    """

    weight = 1.0

    def _steppers(self, optim: OptimConfig) -> dict[str, Stepper]:
        """The optimisers: Dreamer's own, and one for the new network, made here as the first to need it."""
        self.inverse = nn.Linear(2 * self.world.features, self.code.size, device=self.device)
        return super()._steppers(optim) | {"inverse": stepper_of(optim.model, self.inverse)}

    def _world(self, seen: Seen, window: Window) -> Told:
        """The losses of all predictions at the states (B, T) of a window, and metrics."""
        losses, metrics = super()._world(seen, window)
        feature = seen.state.feature  # (B, T, F): gradients reach the world model through it
        guess = self.inverse(torch.cat([feature[:, :-1], feature[:, 1:]], -1))  # (B, T - 1, A)
        taken = window.action[:, 1:].argmax(-1)  # the action of a window's row is the one that led there
        inside = ~window.is_first[:, 1:]  # none leads from one episode into the next
        loss = F.cross_entropy(guess.float().transpose(1, 2), taken, reduction="none")  # (B, T - 1)
        right = ((guess.argmax(-1) == taken) & inside).sum() / inside.sum()
        return losses | {"inverse": self.weight * loss * inside}, metrics | {"world/inverse_right": right}


def main(steps: int = 1_000) -> None:
    """Train a small one, see its loss among the others, and load it back."""
    config = reverie.configure("cartpole", run__steps=steps, replay__warmup=256, run__eval_every=0, run__eval_videos=0)
    outcome = reverie.train(config, agent=Attentive)

    # What `_world` returned is in the log like everything else: the loss as world/inverse_loss, and the metric.
    print("\n   step  loss  share of actions told rightly (by chance: a half)")
    with open(outcome.logdir / "metrics.jsonl") as file:
        for line in map(json.loads, file):
            if "world/inverse_loss" in line:
                print(f"{line['step']:7,}  {line['world/inverse_loss']:.2f}  {line['world/inverse_right']:.2f}")

    # The class is not in the folder: whoever loads or resumes the run gives it again.
    agent = reverie.load(outcome.logdir, agent=Attentive)
    print(f"the action for a pole upright: {agent.act([0.0, 0.0, 0.0, 0.0])}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
