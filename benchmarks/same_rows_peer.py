"""sheeprl's side of same_rows.py, for the Python that sheeprl is installed in; what it tells is its last line, as JSON.

SHEEPRL/bin/python benchmarks/same_rows_peer.py ROWS UPDATES EVERY
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from hydra.utils import instantiate
from lightning.fabric import Fabric
from sheeprl.algos.dreamer_v3_5 import agent as agents
from sheeprl.algos.dreamer_v3_5 import dreamer_v3_5 as training
from sheeprl_peer import configured, moments_of
from torch.distributions import Distribution
from windows import BATCH, LENGTH, LR, WARMUP, Rows, Windows

SIZES = {
    "form": "dreamer_v3_5", "batch": BATCH, "length": LENGTH, "horizon": 15, "units": 64, "groups": 32, "classes": 4,
    "deter": 512, "hidden": 64, "layers": 3, "reward_layers": 1, "cont_layers": 1, "bins": 255, "actor_layers": 3,
    "critic_layers": 3,
}  # fmt: skip
NAMES = {"State/kl": "kl", "Loss/observation_loss": "observation", "Loss/reward_loss": "reward"}


class Learner:
    """sheeprl's agent, and its own function that makes an update of it."""

    def __init__(self, numbers: int, actions: int) -> None:
        self.config, self.actions = configured(SIZES), (actions,)
        self.config.algo.optimizer.lr, self.config.algo.optimizer.warmup = LR, WARMUP
        self.fabric = Fabric(accelerator="cpu", devices=1)
        space = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (numbers,), np.float32)})
        found = agents.build_agent(self.fabric, self.actions, True, self.config, space)
        self.networks, self.target, self.moments = found[:3], found[3], moments_of(training, self.config)
        weights = [each for network in self.networks for each in network.parameters()]
        made = instantiate(self.config.algo.optimizer, params=weights, _convert_="all")
        self.stepper = self.fabric.setup_optimizers(made)

    def learn(self, rows: Rows) -> None:
        """One update."""
        self._train(rows, None)
        training.update_target_critic(self.networks[2], self.target, self.config.algo.critic.tau)

    def told(self, rows: Rows) -> dict[str, float]:
        """The losses of windows, from an update whose last step is left out."""
        heard, usual, moments = Heard(), training.update, copy.deepcopy(self.moments)
        training.update, state = (lambda *_: None), torch.get_rng_state()
        try:
            self._train(rows, heard)
        finally:
            training.update, self.moments = usual, moments
            torch.set_rng_state(state)
        return {name: heard.values[theirs] for theirs, name in NAMES.items()}

    def _train(self, rows: Rows, heard: Heard | None) -> None:
        training.train(
            self.fabric, self.config, *self.networks, self.target, self.stepper, self.moments, batch_of(rows), heard,
            self.actions,
        )  # fmt: skip


class Heard:
    """Takes metrics as sheeprl's own aggregator does."""

    disabled = False

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def update(self, name: str, value: Any) -> None:
        """Remember one."""
        self.values[name] = float(value)


def batch_of(rows: Rows) -> dict[str, torch.Tensor]:
    """Windows (B, T, ...) as sheeprl has them (T, B, ...)."""
    truncated = rows["is_last"] & ~rows["is_terminal"]
    flags = {"terminated": rows["is_terminal"], "truncated": truncated, "is_first": rows["is_first"]}
    columns = {"vector": rows["vector"], "actions": rows["action"], "rewards": rows["reward"][..., None]}
    columns |= {name: flag[..., None] for name, flag in flags.items()}
    return {name: torch.as_tensor(value).float().transpose(0, 1).contiguous() for name, value in columns.items()}


def main() -> None:
    """Learn, and tell of it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Distribution.set_default_validate_args(False)
    windows, updates, every = Windows(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    learner = Learner(windows.rows["vector"].shape[-1], windows.rows["action"].shape[-1])
    found, looked_at = [], windows.looked_at()
    for number, rows in zip(range(1, updates + 1), windows.batches()):
        learner.learn(rows)
        if number % every == 0:
            found.append({part: learner.told(each) for part, each in looked_at.items()})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
