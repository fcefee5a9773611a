"""What others have published for a task, to draw beside one's own: a small table here, or a file of the reader's."""

from __future__ import annotations

import csv
import gzip
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config.errors import UserError
from .curves import Series, made

V3 = "Hafner et al. 2023, github.com/danijar/dreamerv3, scores"
ATARI100K, ATARI_REPEAT = 400e3, 4
"""Frames of 100,000 steps of Atari, and those of a step."""
FAR = 5
"""Runs of more than so many times those frames are of another protocol."""
CRAFTER = "github.com/danijar/crafter, scoreboard"


@dataclass(frozen=True)
class Published:
    """A method's scores over frames of the environment, one series a seed where seeds are known."""

    method: str
    series: tuple[Series, ...]
    source: str


def _scores(method: str, source: str, points: dict[float, float]) -> Published:
    return Published(method, (made(list(points.items())),), source)


def _v3(quarter: float, half: float, whole: float, frames: float) -> Published:
    """DreamerV3's mean over seeds at a quarter, a half and the whole of its budget."""
    return _scores("DreamerV3, published", V3, {frames / 4: quarter, frames / 2: half, frames: whole})


def _atari100k(quarter: float, half: float, whole: float) -> Published:
    """The same at 100,000 steps of Atari."""
    return replace(_v3(quarter, half, whole, ATARI100K), method="DreamerV3, published (Atari-100k)")


TABLE: dict[str, list[Published]] = {
    "atari_pong": [_atari100k(-20.6, -13.4, -4.9)],
    "atari_boxing": [_atari100k(30.6, 50.9, 79.7)],
    "atari_breakout": [_atari100k(4.7, 5.7, 8.9)],
    "dmc_walker_walk proprio": [_v3(603, 876, 925, 500e3)],
    "dmc_cartpole_swingup proprio": [_v3(534, 817, 853, 500e3)],
    "dmc_cheetah_run proprio": [_v3(344, 465, 614, 500e3)],
    "dmc_walker_walk vision": [_v3(887, 940, 960, 1e6)],
    "dmc_cartpole_swingup vision": [_v3(803, 840, 860, 1e6)],
    "dmc_cheetah_run vision": [_v3(458, 655, 836, 1e6)],
    "crafter_reward": [
        _scores("DreamerV3, published", CRAFTER, {1e6: 11.7}),
        _scores("PPO (ResNet), published", CRAFTER, {1e6: 10.3}),
    ],
}
"""Returns of training episodes (sampled actions), means over seeds of the last twentieth of the budget before each
point; by task, of DeepMind Control with the observation."""


def known(options: dict[str, Any]) -> list[Published]:
    """What the table has for a run with these options, by the protocol of that run."""
    task = str(options["task"])
    if task.startswith("atari_") and not is_atari100k(options):
        return []
    if not task.startswith("dmc_"):
        return TABLE.get(task, [])
    observation = options["env.dmc.observation"]
    found = TABLE.get(f"{task} {observation}", [])
    return [replace(each, method=f"{each.method} ({observation})") for each in found]


def is_atari100k(options: dict[str, Any]) -> bool:
    """Whether a run on Atari is like those of Atari-100k: no sticky actions, and a budget of that order."""
    frames = options["run.steps"] * (options["env.repeat"] or ATARI_REPEAT)
    return not options["env.atari.sticky"] and frames <= FAR * ATARI100K


def from_file(path: Path, task: str) -> list[Published]:
    """What a file tells of a task: JSON (also .gz) as dreamerv3 publishes its scores, or CSV with frames and score."""
    rows = _rows(path)
    methods: dict[str, list[Series]] = {}
    for row in rows:
        if row.get("task") in (None, "", task):
            methods.setdefault(str(row.get("method") or path.name.partition(".")[0]), []).append(_series(path, row))
    return [Published(f"{method}, published", tuple(runs), path.name) for method, runs in methods.items()]


def _rows(path: Path) -> list[dict[str, Any]]:
    """One object for each seed of each method: task, method, xs and ys."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode()
        rows = _from_csv(text) if path.suffix == ".csv" else json.loads(text)
    except FileNotFoundError:
        raise UserError(f"no file {path}: --published takes known, none, or a file of scores") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no file of scores ({_word(error)}): docs/plots.md shows the two forms") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path} is no file of scores (a list of objects is expected): docs/plots.md shows the form")
    return rows


def _word(error: Exception) -> str:
    return f"no column {error}" if isinstance(error, KeyError) else " ".join(str(error).split())


def _from_csv(text: str) -> list[dict[str, Any]]:
    runs: dict[tuple[str, str, str], dict[str, Any]] = {}
    for line in csv.DictReader(text.splitlines()):
        task, method, seed = (line.get(name) or "" for name in ("task", "method", "seed"))
        run = runs.setdefault((task, method, seed), {"task": task, "method": method, "xs": [], "ys": []})
        run["xs"].append(float(line["frames"]))
        run["ys"].append(float(line["score"]))
    return list(runs.values())


def _series(path: Path, row: dict[str, Any]) -> Series:
    try:
        points = [(float(x), float(y)) for x, y in zip(row["xs"], row["ys"], strict=True) if y is not None]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is no file of scores (xs and ys of a run do not fit): docs/plots.md") from error
    points = [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]
    if not points:
        raise UserError(f"{path} has a run without scores: remove it")
    return made(points)
