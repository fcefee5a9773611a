"""What updates and acting take as one setting grows and the others stay: batch, length, horizon, model, environments.

    python benchmarks/growth.py FILE.json [--device cpu|cuda] [--fast graph|compile|off] [--seconds 1] [--repeats 3]
    python benchmarks/growth.py FILE.json --draw PICTURE.svg [--relative]       (needs matplotlib)

On a GPU around `12m` with 64x64 images, on a CPU around `1m` with 24 numbers. Rows are made up; a figure is the median
of repeats, and is written down as soon as it is known.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import reverie
from reverie.build import Parts, make_parts, make_rehearsal
from reverie.collect.collector import playable
from reverie.config.schema import Config
from reverie.nn.graph import WARMUP
from reverie.tools.bench import Stopwatch, device_name, forget_peak, peak_bytes
from reverie.tools.bench_rows import Fiction
from reverie.training.opening import weights

AROUND: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "cuda": (("dreamer_v3",), {"task": "atari_pong", "env__atari__all_actions": True}),
    "cpu": (("dmc_proprio",), {"run__threads": 1}),
}
"""Device -> presets and options of the middle, but for the size of the model."""
MIDDLE: dict[str, dict[str, Any]] = {
    "cuda": {"batch": 16, "length": 64, "horizon": 15, "model": "12m"},
    "cpu": {"batch": 16, "length": 64, "horizon": 15, "model": "1m"},
}
AXES: dict[str, list[Any]] = {
    "batch": [4, 16, 64],
    "length": [16, 64, 128],
    "horizon": [5, 15, 30],
}
MODELS = {"cuda": ["1m", "12m", "25m", "50m", "200m"], "cpu": ["1m", "12m", "25m", "50m"]}
ENVS = [1, 4, 16, 64]
FILLED = 4_000
"""Steps in the replay."""
NAMES = {"batch": "windows in a batch", "length": "rows of a window", "horizon": "steps of a dream",
         "model": "weights, millions", "envs": "environments"}  # fmt: skip


def config_of(words: argparse.Namespace, settings: dict[str, Any], envs: int, folder: str) -> Config:
    """A Dreamer with these settings."""
    presets, options = AROUND[words.device]
    return reverie.configure(
        *presets,
        settings["model"],
        device=words.device,
        logdir=folder,
        envs__count=envs,
        envs__backend="serial",
        replay__batch=settings["batch"],
        replay__length=settings["length"],
        replay__capacity=max(20_000, 2 * settings["batch"] * settings["length"]),
        replay__prefill=0,
        behavior__horizon=settings["horizon"],
        run__fast=words.fast,
        run__compilers=0,
        run__eval_every=0,
        run__eval_at_end=False,
        log__tensorboard=False,
        **options,
    )


def measured(words: argparse.Namespace, settings: dict[str, Any], envs: int, acting: bool) -> dict[str, Any]:
    """The rate of updates, or of steps acted upon, with these settings."""
    forget_peak(torch.device(words.device))
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(words, settings, envs, folder)
        parts = make_parts(config)
        parts.close()
        watch = Stopwatch(parts.device, words.repeats, words.seconds)
        call = act_of(parts, envs) if acting else update_of(config, parts, Path(folder))
        watch.block(call, WARMUP + 1 if words.device == "cuda" else 1)
        timing = watch.measure(call)
    found = {"rate": timing.rate * (envs if acting else 1), "ms": timing.milliseconds, "spread": timing.spread}
    return found | {"peak_bytes": peak_bytes(parts.device), "weights": weights(parts.agent)}


def act_of(parts: Parts, envs: int) -> Callable[[], Any]:
    """Acting on made-up rows, from rows on the device to actions that environments take."""
    fiction = Fiction(parts.agent, *parts.stream.spaces, envs, parts.device)
    carry, row = parts.agent.initial_carry(envs), {name: value[0] for name, value in fiction.rows(1).items()}

    def call() -> None:
        playable(parts.agent.act(row, carry, "train")[0]["action"], parts.stream.action_space)

    return call


def update_of(config: Config, parts: Parts, folder: Path) -> Callable[[], Any]:
    """Updates on made-up rows, with sampling and write-back."""
    assert parts.storage is not None
    rehearsal = make_rehearsal(config, folder, parts.device, parts.storage)
    fiction = Fiction(parts.agent, *parts.stream.spaces, config.envs.count, parts.device)
    fiction.fill(rehearsal.replay, FILLED, config.replay.batch, rehearsal.length)
    return partial(rehearsal.update, parts.agent)


def points(device: str) -> list[tuple[str, dict[str, Any], int, bool]]:
    """What is varied, all settings, environments, and whether it is acting that is measured; the middle comes once."""
    middle = MIDDLE[device]
    found = [("middle", middle, 16, False)]
    for name, values in (AXES | {"model": MODELS[device]}).items():
        found += [(name, middle | {name: value}, 16, False) for value in values if value != middle[name]]
    return found + [("envs", middle, count, True) for count in ENVS]


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", choices=tuple(AROUND), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--fast", default="graph", help="how updates run; compile takes a minute for each point")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each point is measured")
    parser.add_argument("--repeats", type=int, default=3, help="repeats that a figure is the median of")
    parser.add_argument("--only", nargs="+", default=[*AXES, "model", "middle", "envs"], help="what to vary")
    parser.add_argument("--draw", type=Path, help="draw the file's figures instead")
    parser.add_argument("--relative", action="store_true", help="draw each curve beside its first point")
    words = parser.parse_args()
    if words.draw:
        draw(json.loads(words.file.read_text()), words.draw, words.relative)
        return
    about = {"device": device_name(torch.device(words.device)), "fast": words.fast, "middle": MIDDLE[words.device]}
    found: list[dict[str, Any]] = []
    for name, settings, envs, acting in (point for point in points(words.device) if point[0] in words.only):
        gc.collect()
        if words.device == "cuda":
            torch.cuda.empty_cache()
        found.append({"varied": name, "settings": settings, "envs": envs, **measured(words, settings, envs, acting)})
        words.file.write_text(json.dumps(about | {"points": found}, indent=1))
        place = envs if acting else settings.get(name, "")
        print(f"{name:8} {place!s:5} {found[-1]['rate']:9.1f} a second, {found[-1]['ms']:8.2f} ms", flush=True)


def series(report: dict[str, Any], name: str) -> tuple[list[float], list[float]]:
    """What was varied and the rates, in order; the middle belongs to each but the environments."""
    chosen = [each for each in report["points"] if each["varied"] in ((name,) if name == "envs" else (name, "middle"))]

    def place(point: dict[str, Any]) -> float:
        return {"model": point["weights"] / 1e6, "envs": point["envs"]}.get(name) or point["settings"][name]

    pairs = sorted((place(each), each["rate"]) for each in chosen)
    return [x for x, _ in pairs], [y for _, y in pairs]


def draw(report: dict[str, Any], path: Path, relative: bool) -> None:
    """A picture for each setting, both axes logarithmic, with a line for what would be proportional."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    figure, axes = plt.subplots(1, len(NAMES), figsize=(2.6 * len(NAMES), 2.7))
    for axis, (name, label) in zip(axes, NAMES.items()):
        xs, ys = series(report, name)
        ys = [y / ys[0] for y in ys] if relative else ys
        axis.loglog(xs, ys, "o-", color="#0072b2", ms=4)
        away = [ys[-1] * (x / xs[-1]) ** (1 if name == "envs" else -1) for x in xs]
        axis.loglog(xs, away, "--", color="#999999", lw=1)
        axis.set_xticks(xs, [f"{x:.1f}" if x < 1 else f"{x:.0f}" for x in xs], minor=False, fontsize=7)
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.set_xlabel(label)
        what = "steps acted upon" if name == "envs" else "updates"
        axis.set_title(f"{what} a second{', the first as 1' * relative}", fontsize=8)
        axis.grid(alpha=0.3, which="both")
    title = "{device}, --run.fast {fast}, around {model}, {batch} windows of {length} rows, dreams of {horizon} steps"
    figure.suptitle(title.format(**report, **report["middle"]) + "; dashed: proportional", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
