"""The filter over a window on a GPU: its own kernels beside plain operations, both replayed as CUDA graphs.

    python benchmarks/filter.py [--sizes 12m 50m 200m] [--steps 64] [--compiled] [--waits] [--caching 4/8 0/0]
                                [--json FILE]

Windows of 16 with random inputs, in bfloat16. Each way alone, and both with the gradients of weights, as updates need
them; medians of repeats. Gradients are compared with those of plain operations over the first steps, before a draw
that falls on the other side of a rounded number sends both to different states. `--compiled` also times plain
operations compiled step by step, which takes a minute to compile. `--waits` tells for what and how long thread blocks
wait, and `--caching 4/8 0/0` times the kernels with other numbers of cells that are called ahead and kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reverie.config.presets import stacked
from reverie.nn.layers import Layers
from reverie.world.kernel.persistent import PersistentScan
from reverie.world.kernel.program import Program, times_of
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
    found |= {name: milliseconds(call) for name, call in alone(program, rssm, window).items()}
    sides = {"kernels": ours, "plain": plain} | ({"compiled": Scan(rssm, "inductor")} if words.compiled else {})
    return found | {name: milliseconds(partial(gradients, rssm, scan, window)) for name, scan in sides.items()}


def alone(program: Program, rssm: RSSM, window: Window) -> dict[str, Callable[[], Any]]:
    """Each kernel by itself."""
    first, *others = window.turned()
    goals = tuple(goal.transpose(0, 1).contiguous() for goal in window.goals)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        weights = PersistentScan(rssm, program).kernel_weights()
    known = program.forward(weights, window.start, first, *others)
    return {
        "forwards": lambda: program.forward(weights, window.start, first, *others),
        "backwards": lambda: program.reverse(weights, known, first, goals),  # type: ignore[arg-type]
    }


def caching(size: str, ways: list[str], steps: int) -> dict[str, float]:
    """Milliseconds of each kernel with other cells in the second-level cache."""
    rssm, found = model(size), {}
    window = made_up(rssm, steps)
    for way in ways:
        ahead, lasting = map(int, way.split("/"))
        program = Program(replace(shape_of(rssm), ahead=ahead, lasting=lasting), DEVICE)
        found |= {f"{name}, {way}": milliseconds(call) for name, call in alone(program, rssm, window).items()}
    return found


def waits(size: str, steps: int) -> dict[str, float]:
    """Microseconds of a step that thread blocks wait for each phase, and that they then work: mean and longest."""
    rssm = model(size)
    window, plain = made_up(rssm, steps), Program(shape_of(rssm), DEVICE)
    timed, found = Program(plain.shape, DEVICE, timed=steps), {}
    calls = alone(timed, rssm, window)
    for name, call in alone(plain, rssm, window).items():
        for _ in range(3):
            timed.fault.zero_()
            calls[name]()
        torch.cuda.synchronize()
        spent = 1000 * milliseconds(call)
        found |= {
            f"{name}, {phase}": value for phase, value in phases(times_of(timed, steps), PHASES[name], spent).items()
        }
    return found


def apart(cycles: Tensor, base: Tensor) -> Tensor:
    """Cycles of a counter of 32 bits from a base on, or before it."""
    return (cycles - base + 2**31) % 2**32 - 2**31


def phases(times: Tensor, names: tuple[str, ...], spent: float) -> dict[str, float]:
    """The same of the times of one kernel that took so many microseconds."""
    began, ended = times.cpu().long().unbind(-1)  # (1 + T, CTAs, counters)
    order = began.permute(1, 0, 2).flatten(1)
    stop, steps = ended.permute(1, 0, 2).flatten(1), len(began) - 1
    held: dict[str, list[float]] = {}
    for cta in range(len(order)):
        at = order[cta].ne(0).nonzero().flatten()
        base, last = (apart(x[cta][at], order[cta][at[0]]) for x in (order, stop))
        last, base = last - base.min(), base - base.min()
        turn = base.argsort()
        at, base, last = at[turn], base[turn], last[turn]
        scale = spent / float(last[-1]) / steps
        for which in range(began.shape[-1]):
            mine = at % began.shape[-1] == which
            if mine.any():
                name = names[min(which, len(names) - 1)]
                following = torch.cat([base[1:], last[-1:]]) - last
                held.setdefault(f"wait for {name}", []).append(float((last - base)[mine].sum()) * scale)
                held.setdefault(f"work after {name}", []).append(float(following[mine].sum()) * scale)
    return {
        f"{name} ({kind})": pick(each) for name, each in held.items() for kind, pick in (("mean", mean), ("most", max))
    }


PHASES = {
    "forwards": ("mix", "project (posterior)", "project (summary)", "summarise", "infer", "embed", "advance"),
    "backwards": ("tilt", "unmix", "unsummarise", "undraw", "uninfer", "ungate"),
}
"""What others wait for, in the order of the kernels' counters; the last has several."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["12m", "50m", "200m"], help="published sizes")
    parser.add_argument("--steps", type=int, default=64, help="rows of a window")
    parser.add_argument("--compiled", action="store_true", help="time the filter compiled step by step, too")
    parser.add_argument("--waits", action="store_true", help="tell what thread blocks wait for")
    parser.add_argument("--caching", nargs="*", default=[], help="cells called ahead / kept, in other numbers")
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
        further = caching(size, words.caching, words.steps) | (waits(size, words.steps) if words.waits else {})
        for name, value in further.items():
            print(f"{'':5} {value:8.3f} {name}", flush=True)
        told[size] |= further
        if words.json:
            words.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
