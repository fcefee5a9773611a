"""Where a run computes: its device, and which of several processes that learn together it is."""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from ..config.errors import UserError
from ..config.schema import Config
from ..nn import ranks


def device_of(config: Config) -> torch.device:
    """The device that the configuration names, or the best there is."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; use --device cpu or auto")
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(kind if config.device == "auto" else config.device)
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        number, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if number >= there:
            raise UserError(f"torchrun started more processes than the {there} GPUs here: lower --nproc_per_node")
        device = torch.device("cuda", number)
        torch.cuda.set_device(device)
    return device


def of_rank(config: Config) -> Config:
    """The configuration for this one of several processes that learn together.

    The first is an ordinary run. The others keep their part in a folder of its folder, and neither evaluate nor report.
    """
    logdir, number = ranks.agreed(config.logdir), ranks.number()
    if not number:
        return config
    run = replace(config.run, eval_every=0, eval_at_end=False, goal=None, stop_at=None)
    log = replace(config.log, tensorboard=False, wandb=False)
    return replace(config, logdir=f"{logdir}/rank-{number}", run=run, log=log)
