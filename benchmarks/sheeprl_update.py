"""One update of Dreamer V3 on a CPU: sheeprl's beside ours, and ours as plain operations of torch beside ours as it is.

    python -m venv SHEEPRL && SHEEPRL/bin/pip install torch sheeprl==0.8.4
    python benchmarks/sheeprl_update.py --sheeprl SHEEPRL/bin/python [--threads 2] [--repeats 7] [--cases 1m cartpole]

Every side updates on one made-up batch with its own training function; they take turns, and ratios are of medians.
`1m` has 24 numbers and 6 actions; `cartpole` is what `reverie train` runs, which dreams from half of a window's states,
where sheeprl dreams from all, as `cartpole_all` does. `dreamer_v3_5` is sheeprl's form of the newest Dreamer V3.
Where ours takes products in bfloat16, which sheeprl does not do on a CPU by itself, ours in float32 is a side, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from reverie.build import make_agent
from reverie.config.options import replaced
from reverie.config.presets import stacked
from reverie.config.schema import Config
from reverie.nn.native.machine import machine
from reverie.tools.bench_rows import Fiction
from reverie.training.threads import keep_freed_memory, settled

CASES: dict[str, tuple[list[str], dict[str, Any], int, int]] = {
    "1m": (["dreamer_v3", "1m"], {}, 24, 6),
    "cartpole": (["cartpole"], {}, 4, 2),
    "cartpole_all": (["cartpole"], {"behavior.starts": 0}, 4, 2),
}
"""Presets, options, numbers of an observation, and actions."""

Side = Callable[[int], tuple[float, float]]
"""From a number of updates to their seconds, on the clock and of the processor."""


def ours(case: str, fast: str, precision: str = "auto") -> Side:
    """Our update, in this process."""
    presets, options, numbers, actions = CASES[case]
    config = replaced(stacked(presets), options | {"run.fast": fast, "world.precision": precision})
    observation = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (numbers,), np.float32)})
    action, device = spaces.Discrete(actions), torch.device("cpu")
    agent = make_agent(config, observation, action, device)
    fiction = Fiction(agent, observation, action, config.replay.batch, device)
    rows = fiction.rows(config.replay.length + int(config.replay.start == "stored"))
    batch = {name: value.transpose(0, 1).contiguous() for name, value in rows.items()}

    def updates(count: int) -> tuple[float, float]:
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(count):
            agent.learn_replay(batch)
        return time.perf_counter() - start, time.process_time() - busy

    return updates


def theirs(case: str, form: str, python: Path, threads: int) -> Side:
    """sheeprl's update, in a process of its own Python."""
    script, words = Path(__file__).with_name("sheeprl_peer.py"), sizes(case) | {"form": form, "threads": threads}
    command = [str(python), str(script), json.dumps(words)]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def updates(count: int) -> tuple[float, float]:
        assert peer.stdin is not None and peer.stdout is not None
        print(count, file=peer.stdin, flush=True)
        wall, busy = peer.stdout.readline().split()
        return float(wall), float(busy)

    return updates


def sizes(case: str) -> dict[str, int]:
    """The sizes of a case, by names that both sides know."""
    presets, options, numbers, actions = CASES[case]
    config: Config = replaced(stacked(presets), options)
    names = ("deter", "hidden", "groups", "classes", "units", "layers", "reward_layers", "cont_layers", "bins")
    found = {name: getattr(config.world, name) for name in names}
    found |= {name: getattr(config.behavior, name) for name in ("actor_layers", "critic_layers", "horizon")}
    return found | {
        "batch": config.replay.batch,
        "length": config.replay.length,
        "numbers": numbers,
        "actions": actions,
    }


def measured(sides: dict[str, Side], repeats: int, seconds: float) -> dict[str, tuple[float, float]]:
    """Seconds of an update of each side, on the clock and of the processor: medians of repeats that take turns."""
    for side in sides.values():
        side(2)
    calls = {name: max(1, round(seconds / side(1)[0])) for name, side in sides.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            wall, busy = side(calls[name])
            times[name].append((wall / calls[name], busy / calls[name]))
    return {name: (median(wall for wall, _ in each), median(busy for _, busy in each)) for name, each in times.items()}


def report(case: str, found: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """The figures of a case, which are printed too."""
    print(f"{case}: {', '.join(f'{name} {value}' for name, value in sizes(case).items())}")
    wall, busy = found["reverie"]
    for name, (seconds, processor) in found.items():
        ratios = f"{seconds / wall:5.2f} times ours, {processor / busy:5.2f} by processor time"
        print(f"  {name:22} {1000 * seconds:9.1f} ms, of the processor {1000 * processor:9.1f}: {ratios}", flush=True)
    milliseconds = {name: [1000 * value for value in each] for name, each in found.items()}
    return {"ms": milliseconds, "ratio": {name: seconds / wall for name, (seconds, _) in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sheeprl", type=Path, help="the Python that sheeprl is installed in")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each repeat of each side")
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    keep_freed_memory()
    found = {}
    for case in words.cases:
        sides = {"reverie": ours(case, "auto"), "reverie, plain": ours(case, "off")}
        if case == "1m" and machine().halves():
            sides["reverie, float32"] = ours(case, "auto", "float32")
        if words.sheeprl is not None:
            forms = ("dreamer_v3", "dreamer_v3_5") if case == "1m" else ("dreamer_v3",)
            sides |= {f"sheeprl {form}": theirs(case, form, words.sheeprl, words.threads) for form in forms}
        with settled():  # as in training
            found[case] = report(case, measured(sides, words.repeats, words.seconds))
    print(json.dumps({"threads": words.threads, "torch": torch.__version__} | found))


if __name__ == "__main__":
    main()
