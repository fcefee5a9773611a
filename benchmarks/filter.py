"""The filter over a window on a GPU: its own kernels beside plain operations, both replayed as CUDA graphs.

    python benchmarks/filter.py [--sizes 12m 50m 200m] [--steps 64] [--compiled] [--json FILE]

Windows of 16 with random inputs, in bfloat16. Each way alone, and both with the gradients of weights, as updates need
them; medians of repeats. Gradients are compared with those of plain operations over the first steps, before a draw
that falls on the other side of a rounded number sends both to different states. `--compiled` also times plain
operations compiled step by step, which takes a minute to compile.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reverie.config.presets import stacked
from reverie.nn.layers import Layers
from reverie.world.kernel.persistent import PersistentScan
from reverie.world.kernel.program import Program
from reverie.world.kernel.shape import BATCH, shape_of, unfit
from reverie.world.rssm import RSSM, State
from reverie.world.scan import Scan

DEVICE = torch.device("cuda", 0)
ACTIONS, EMBEDDING = 6, 24
COMPARED = 4
"""Steps over which gradients are compared."""


class Window(NamedTuple):
    """What a scan takes, and the gradients that come back (B, T, ...)."""

    start: State
    first: Tensor
    acted: Tensor
    embedded: Tensor
    noise: Tensor
    goals: tuple[Tensor, Tensor, Tensor]

    def until(self, steps: int) -> Window:
        """Its first steps."""
        cut = (x[:, :steps].contiguous() for x in self[1:5])
        return Window(self.start, *cut, tuple(goal[:, :steps] for goal in self.goals))  # type: ignore[arg-type]

    def turned(self) -> tuple[Tensor, ...]:
        """Inputs with steps first."""
        return tuple(x.transpose(0, 1).contiguous() for x in self[1:5])


def model(size: str) -> RSSM:
    """The filter of a published size."""
    config = stacked(["dreamer_v3", size]).world
    torch.manual_seed(0)
    return RSSM(config, EMBEDDING, ACTIONS, Layers(config.norm, config.activation, config.init)).to(DEVICE)


def made_up(rssm: RSSM, steps: int) -> Window:
    """A window of random numbers, in which episodes begin."""
    hidden, latent, lead = rssm.deter_in.out_features, rssm.latent, (BATCH, steps)
    drawn = latent.unpack(torch.randint(latent.classes, (BATCH, latent.groups), device=DEVICE))
    numbers = [torch.randn(*lead, hidden, device=DEVICE).bfloat16() for _ in range(2)]
    goals = (
        torch.randn(*lead, rssm.deter, device=DEVICE),
        torch.randn(*lead, latent.size, device=DEVICE),
        torch.randn(*lead, latent.groups, latent.classes, device=DEVICE),
    )
    noise = latent.noise(lead, torch.Generator(DEVICE).manual_seed(1))
    start = State(torch.randn(BATCH, rssm.deter, device=DEVICE).tanh(), drawn)
    return Window(start, torch.rand(lead, device=DEVICE) < 0.02, *numbers, noise, goals)


def gradients(rssm: RSSM, scan: Scan, window: Window) -> list[Tensor]:
    """Those of inputs and weights, as an update takes them."""
    leaves = [x.detach().requires_grad_() for x in (window.acted, window.embedded)]
    with torch.autocast(DEVICE.type, torch.bfloat16):
        state, params = scan(window.start, window.first, *leaves, window.noise)
    wanted = [*leaves, *rssm.parameters()]
    found = torch.autograd.grad([*state, params], wanted, window.goals, allow_unused=True)
    return [grad for grad in found if grad is not None]


def nearness(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The least cosine between two sides' gradients."""
    cosine = torch.nn.functional.cosine_similarity
    return min(float(cosine(a.double().flatten(), b.double().flatten(), 0)) for a, b in zip(ours, theirs, strict=True))


def milliseconds(function: Callable[[], Any], repeats: int = 15) -> float:
    """The usual time of a function as a graph."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        kept = function()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    for _ in range(3):
        graph.replay()
    for mark in marks[:-1]:
        mark.record()
        graph.replay()
    marks[-1].record()
    torch.cuda.synchronize()
    del kept
    return median(before.elapsed_time(after) for before, after in pairwise(marks))


def figures(size: str, words: argparse.Namespace) -> dict[str, float]:
    """What was measured of a size; a ValueError says why its kernels do not fit."""
    rssm = model(size)
    if reason := unfit(rssm, BATCH, half=True):
        raise ValueError(reason)
    program = Program(shape_of(rssm), DEVICE)
    ours, plain, window = PersistentScan(rssm, program), Scan(rssm), made_up(rssm, words.steps)
    few = window.until(COMPARED)
    found = {"least cosine": nearness(gradients(rssm, ours, few), gradients(rssm, plain, few))}
    with torch.autocast(DEVICE.type, torch.bfloat16):
        weights = ours.kernel_weights()
    first, *others = window.turned()
    goals = tuple(goal.transpose(0, 1).contiguous() for goal in window.goals)
    known = program.forward(weights, window.start, first, *others)
    found["forwards"] = milliseconds(lambda: program.forward(weights, window.start, first, *others))
    found["backwards"] = milliseconds(lambda: program.reverse(weights, known, first, goals))  # type: ignore[arg-type]
    sides = {"kernels": ours, "plain": plain} | ({"compiled": Scan(rssm, "inductor")} if words.compiled else {})
    return found | {name: milliseconds(partial(gradients, rssm, scan, window)) for name, scan in sides.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["12m", "50m", "200m"], help="published sizes")
    parser.add_argument("--steps", type=int, default=64, help="rows of a window")
    parser.add_argument("--compiled", action="store_true", help="time the filter compiled step by step, too")
    parser.add_argument("--json", type=Path, help="where to leave the figures, each size as soon as it is known")
    words = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("the filter's kernels need a GPU")
    told: dict[str, Any] = {"device": torch.cuda.get_device_name(DEVICE), "torch": torch.__version__}
    for size in words.sizes:
        try:
            told[size] = figures(size, words)
        except (RuntimeError, ValueError) as error:  # a GPU that is too small, or a size that no kernel is made for
            print(f"{size:5} {str(error).splitlines()[0]}", flush=True)
            continue
        print(f"{size:5} " + ", ".join(f"{name} {value:.3f}" for name, value in told[size].items()), flush=True)
        print(f"{'':5} plain / kernels: {told[size]['plain'] / told[size]['kernels']:.2f}", flush=True)
        if words.json:
            words.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
