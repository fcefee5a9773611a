"""Dreams of a trained agent: it plays real episodes, and its world model predicts them from their first steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ..agents.base import Agent, Carry, Mode
from ..collect.collector import playable
from ..config.errors import UserError
from ..data.rows import Batch
from ..envs.rows import RowStream
from ..log.dreams import COLUMNS, film, scenes
from ..log.video import write_gif
from ..world.dream import Dream, Pair, errors


@runtime_checkable
class Dreaming(Protocol):
    """An agent with a world model."""

    def dream(self, rows: Batch, carry: Carry, context: int) -> Dream:
        """What its world model predicts of rows (B, T) from their first ones; `carry` is from before them."""


@dataclass(frozen=True)
class Stretch:
    """Which steps of an episode are dreamt."""

    start: int = 0
    """Steps before the first of them; of an episode that ends too early, its last steps are taken."""
    length: int = 60
    context: int = 5


class Take:
    """The newest rows of one episode, and what the agent remembered before the first of them."""

    def __init__(self, stretch: Stretch) -> None:
        self.rows: deque[Batch] = deque(maxlen=stretch.length)
        self.carries: deque[Carry] = deque(maxlen=stretch.length)
        self.missing = stretch.start + stretch.length

    def add(self, row: Batch, carry: Carry) -> None:
        """Keep a row (1, ...) unless the take is complete."""
        if self.missing > 0:
            self.rows.append(row)
            self.carries.append(carry)
            self.missing = 0 if bool(row["is_last"]) else self.missing - 1


def dreams(agent: Agent, stream: RowStream, stretch: Stretch, mode: Mode, device: torch.device) -> list[Dream]:
    """The dream of one episode in each environment of the stream."""
    if not isinstance(agent, Dreaming):
        raise UserError("this run's agent has no world model, so it cannot dream: take a run of Dreamer")
    takes = [Take(stretch) for _ in range(stream.count)]
    with torch.inference_mode():
        play(agent, stream, takes, mode, device)
        rows = [{key: torch.stack([row[key] for row in take.rows], 1) for key in take.rows[0]} for take in takes]
        return [agent.dream(each, take.carries[0], stretch.context) for each, take in zip(rows, takes)]


def play(agent: Agent, stream: RowStream, takes: Sequence[Take], mode: Mode, device: torch.device) -> None:
    """Play until every take is complete."""
    rows, carry = stream.begin(), agent.initial_carry(stream.count)
    while any(take.missing > 0 for take in takes):
        # copies: a stream may write its next rows into the same memory
        batch = {key: torch.from_numpy(np.array(value)).to(device) for key, value in rows.items()}
        added, after = agent.act(batch, carry, mode)
        for i, take in enumerate(takes):
            take.add(_one(batch | {"action": added["action"]}, i), _one(carry, i))
        rows, carry = stream.step(playable(added["action"], stream.action_space)), after


def _one(batch: dict[str, Tensor], place: int) -> dict[str, Tensor]:
    return {key: value[place : place + 1] for key, value in batch.items()}


def joined(shown: Sequence[Dream]) -> Dream:
    """Dreams of one window each, one after another as if they were a single one."""

    def pairs(kind: str) -> dict[str, Pair]:
        first: dict[str, Pair] = getattr(shown[0], kind)
        each = {key: [getattr(one, kind)[key] for one in shown] for key in first}
        return {key: Pair(*(torch.cat(parts, 1) for parts in zip(*found))) for key, found in each.items()}

    seen = torch.cat([one.seen for one in shown], 1)
    return Dream(seen, images=pairs("images"), vectors=pairs("vectors"), numbers=pairs("numbers"))


def figures(shown: Sequence[Dream]) -> dict[str, float]:
    """The errors of dreams together; those that cannot be told, since nothing varies, are left out."""
    found = {name: float(value) for name, value in errors(joined(shown)).items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def save_gifs(shown: Sequence[Dream], folder: Path, name: str, fps: int) -> list[Path]:
    """The files of dreams, a few side by side in each."""
    paths = []
    for begin in range(0, len(shown), COLUMNS):
        part = f"_{begin // COLUMNS + 1}" if len(shown) > COLUMNS else ""
        paths.append(folder / f"dream_{name}{part}.gif")
        columns = [scene for each in shown[begin : begin + COLUMNS] for scene in scenes(each)]
        write_gif(paths[-1], film(columns), fps)
    return paths
