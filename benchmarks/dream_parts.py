"""What a step of a dream is made of on a GPU, kernel by kernel, launched in several ways.

    python benchmarks/dream_parts.py [--sizes 12m] [--json FILE]

Microseconds with 1,024 dreams in bfloat16, each kernel fifteen times in a CUDA graph, medians of repeats; for the cell
beside compiled operations. What lies between two states is also timed with fewer layers and smaller latents, which
tells what these take. Every launch takes Triton some seconds to compile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from dreams import HORIZON, KERNELS, STARTS, agent_of, side_of
from filter import milliseconds
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from reverie.agents import dream_kernels
from reverie.agents.dreaming import unsuited
from reverie.config.errors import first_line
from reverie.nn import gru_kernels
from reverie.nn.gru import BlockCell, gated

MIXES = [(128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 32, 8, 4)]
GATES = [(128, 64, 64, 8, 3), (64, 64, 64, 4, 3), (128, 128, 32, 8, 3), (64, 128, 64, 8, 3)]
THINKS = [(16, 128, 8, 1), (16, 64, 8, 3), (32, 128, 8, 1), (16, 128, 16, 1)]
"""Rows, columns but for the last, inputs, warps and loads ahead."""
FEWER: dict[str, dict[str, Any]] = {
    "one layer of prior and actor": {"world__prior_layers": 1, "behavior__actor_layers": 1},
    "four classes of latents": {"world__classes": 4},
}
"""Other models, between whose states less lies."""
Way = Callable[[], Any]


class Step:
    """A model, and tensors as a step of its dreams takes them."""

    def __init__(self, size: str, **options: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            agent = agent_of(size, "cuda", folder, **options)
        self.rssm, self.behavior = agent.world.rssm, agent.behavior
        self.dream = side_of(KERNELS, self.rssm, self.behavior, "cuda")
        self.dream.renew()
        deter, latent = self.rssm.deter, self.rssm.latent
        width = len(self.rssm.cell.deter_in[0].weight)
        self.held = torch.randn(STARTS, deter + 3 * width, device="cuda").bfloat16()
        self.state, self.inputs = self.held[:, :deter], self.held[:, deter:]
        features = self.held.new_empty(STARTS, deter + latent.size)
        self.after, self.stoch = features[:, :deter], features[:, deter:]
        self.drawn = torch.randint(latent.classes, (STARTS, latent.groups), device="cuda").int()
        self.noise = torch.rand(self.drawn.shape, device="cuda"), torch.rand(STARTS, device="cuda")

    def cell(self) -> Iterator[tuple[str, Way]]:
        """All up to the next state."""
        weights, plain = self.dream.cell, torch.compile(Plain(self.rssm.cell), dynamic=False)
        yield "first products", lambda: F.linear(self.state, *self.dream.by_deter)
        yield "cell, compiled", lambda: plain(self.state, self.inputs)
        x, sums = gru_kernels.mixed(self.held, weights)
        spare = x.clone()
        yield "norm and SiLU", lambda: gru_kernels.activated(spare, sums, weights)
        for numbers in MIXES:
            launch = gru_kernels.Launch(*numbers)
            yield f"mix {numbers}", partial(gru_kernels.mixed, self.held, weights, launch)
        for numbers in GATES:
            launch = gru_kernels.Launch(*numbers)
            yield f"gates {numbers}", partial(gru_kernels.gated, self.held, x, weights, self.after, launch)

    def between(self, launches: list[tuple[int, int, int, int]]) -> Iterator[tuple[str, Way]]:
        """What lies between two states."""
        if unsuited(self.rssm, self.behavior, True):
            return
        known = F.linear(self.state, *self.dream.by_deter)
        action = torch.empty(STARTS, self.behavior.policy.outputs, device="cuda")
        given = self.dream.thoughts, known, self.drawn, self.held, action, self.stoch, self.noise
        for numbers in launches:
            yield f"between states {numbers}", partial(dream_kernels.think, *given, dream_kernels.Launch(*numbers))


class Plain(nn.Module):
    """The cell as compiled dreams take it."""

    def __init__(self, cell: BlockCell) -> None:
        super().__init__()
        self.cell = cell
        self.halved = {
            name: {part: weight.to(torch.bfloat16) for part, weight in layer.named_parameters()}
            for name, layer in (("mix", cell.mix), ("gates", cell.gates))
        }

    def forward(self, state: Tensor, inputs: Tensor) -> Tensor:
        """The next state."""
        cell = self.cell
        blocks = state.unflatten(-1, (cell.blocks, -1))
        joined = torch.cat([blocks, inputs.unsqueeze(1).expand(-1, cell.blocks, -1)], -1)
        x = functional_call(cell.mix, self.halved["mix"], (joined,))
        x = cell.tail(x.flatten(1)).reshape(blocks.shape)
        gates = functional_call(cell.gates, self.halved["gates"], (x,))
        return gated(blocks, gates.float()).flatten(1).to(state.dtype)


def again(way: Way) -> Any:
    """What a way gives in the end."""
    for _ in range(HORIZON):
        kept = way()
    return kept


def figures(size: str) -> dict[str, float]:
    """Microseconds of each kernel of a size."""
    step, found = Step(size), {}
    ways = [*step.cell(), *step.between(THINKS)]
    for title, options in FEWER.items():
        ways += [(f"{name}, {title}", way) for name, way in Step(size, **options).between(THINKS[:1])]
    for name, way in ways:
        try:
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                found[name] = 1000 / HORIZON * milliseconds(partial(again, way))
        except Exception as error:  # Triton has a kind of its own for each way in which a launch does not fit
            print(f"{size}: {name} does not run: {first_line(error)}", flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["12m"], help="published sizes")
    parser.add_argument("--json", type=Path, help="where to leave the figures, each size as soon as it is known")
    words = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU to time kernels on")
    told: dict[str, Any] = {"torch": torch.__version__}
    for size in words.sizes:
        told[size] = figures(size)
        for name, value in told[size].items():
            print(f"{size:5} {value:8.1f} us  {name}", flush=True)
        if words.json:
            words.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
