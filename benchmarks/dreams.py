"""Dreams on a GPU: by kernels of our own, beside steps that are compiled, as they are or with joined products.

    python benchmarks/dreams.py [--sizes 12m 50m 200m] [--whole] [--device cuda|cpu] [--json FILE]

15 steps from 1,024 states, in bfloat16, replayed as one CUDA graph; medians of repeats that take turns. First all dream
in float32 of the same random numbers, and what they dream is compared: on a CPU that is all that is done (the kernels'
dreams with `TRITON_INTERPRET=1`). `--whole` times whole updates from images with these dreams. What a step is made of
is timed by `dream_parts.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from filter import milliseconds
from growth import MIDDLE, config_of, update_of
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import reverie
from reverie.agents.behavior import Behavior
from reverie.agents.compiled import Dreaming, keep_compiled
from reverie.agents.dreamer import Dreamer
from reverie.agents.dreaming import KernelDreaming, unsuited
from reverie.build import make_parts
from reverie.nn.graph import WARMUP
from reverie.nn.gru import BlockCell, gated, limited
from reverie.nn.halved import Halved
from reverie.tools.bench import Stopwatch
from reverie.world.rssm import RSSM, State

STARTS, HORIZON, TURNS = 1_024, 15, 5
APART, JOINED, KERNELS = "apart", "joined", "kernels"
Dream = Callable[[RSSM, State, Tensor, Tensor], tuple[Tensor, Tensor]]


class Together(NamedTuple):
    """Weights and biases of layers with the same inputs, one above the other, and the scales of the norms after."""

    by_deter: tuple[Tensor, Tensor]
    by_stoch: tuple[Tensor, Tensor]
    scales: Tensor
    """Of prior, state, latent and actor (4, hidden)."""


class JoinedStep(nn.Module):
    """A step of a dream of the newest cell, with RMS norms and one width of layers.

    The state is multiplied once for the prior, the cell and the actor, and a latent once for the cell and the actor.
    """

    def __init__(self, rssm: RSSM, behavior: Behavior) -> None:
        super().__init__()
        assert isinstance(rssm.cell, BlockCell)
        self.rssm, self.cell, self.actor, self.policy = rssm, rssm.cell, behavior.actor, behavior.policy
        self.prior_net, self.body = list(rssm.prior_net), list(behavior.actor[0])
        self.eps = rssm.cell.deter_in[1].eps

    def together(self, kind: torch.dtype) -> Together:
        """The joined weights as they are now."""
        deter = self.rssm.deter
        prior, state, latent, actor = self.prior_net[0], self.cell.deter_in[0], self.cell.stoch_in[0], self.body[0]
        tails = self.prior_net[1], self.cell.deter_in[1], self.cell.stoch_in[1], self.body[1]
        by_deter = torch.cat([prior.weight, state.weight, actor.weight[:, :deter]])
        by_stoch = torch.cat([latent.weight, actor.weight[:, deter:]])
        biases = torch.cat([prior.bias, state.bias, actor.bias]), F.pad(latent.bias, (0, len(actor.bias)))
        scales = torch.stack([norm.weight for norm in tails])
        return Together((by_deter.to(kind), biases[0].to(kind)), (by_stoch.to(kind), biases[1].to(kind)), scales)

    def forward(
        self, joined: Together, known: Tensor, feature: Tensor, draw: Tensor, noise: Tensor
    ) -> tuple[State, Tensor, Tensor]:
        """The state dreamt to follow features (B, F), the action that leads there, and products of that state."""
        deter, stoch = feature.split([self.rssm.deter, self.rssm.latent.size], -1)
        _, of_state, of_actor = known.chunk(3, -1)
        of_latent, more = F.linear(stoch, *joined.by_stoch).chunk(2, -1)
        three = torch.stack([of_state, of_latent, of_actor + more], 1)
        state, latent, acting = self._activated(three, joined.scales[1:]).unbind(1)
        action = self.policy(self.actor[1](nn.Sequential(*self.body[3:])(acting))).sample(draw)
        inputs = torch.cat([state, latent, self.cell.action_in(limited(action)).to(state.dtype)], -1)
        after = self.advance(deter, inputs).to(feature.dtype)
        known = F.linear(after, *joined.by_deter)
        told = self._activated(known.chunk(3, -1)[0], joined.scales[0])
        params = self.rssm.latent.params(self.rssm.prior_out(nn.Sequential(*self.prior_net[3:])(told)))
        return State(after, self.rssm.latent.sample(params, noise)), action, known

    def _activated(self, x: Tensor, scale: Tensor) -> Tensor:
        wide = x.float()
        return F.silu(wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt() * scale).to(x.dtype)

    def advance(self, deter: Tensor, inputs: Tensor) -> Tensor:
        """The next state from this one and the features of state, latent and action (B, 3 hidden)."""
        cell = self.cell
        blocks = deter.unflatten(-1, (cell.blocks, -1))
        shared = inputs.unsqueeze(1).expand(-1, cell.blocks, -1)
        x = cell.tail(cell.mix(torch.cat([blocks.to(shared.dtype), shared], -1)).flatten(1)).reshape(blocks.shape)
        return gated(blocks, cell.gates(x).float()).flatten(1)


class JoinedDreaming:
    """Does what `Dreaming` does, by joined steps."""

    def __init__(self, rssm: RSSM, behavior: Behavior) -> None:
        self.module = JoinedStep(rssm, behavior)
        self.halved = Halved(self.module)
        self.step = self._step

    def __call__(self, rssm: RSSM, start: State, draws: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Features (H + 1, B, F) and actions (H, B, A) of dreams from a start (B,), with the weights of now."""
        weights, first = self.halved(), start.feature.to(self.halved.kind)
        joined = self.module.together(self.halved.kind)
        features = first.new_empty(len(draws) + 1, *first.shape)
        features[0] = first
        known, actions = F.linear(first[:, : rssm.deter], *joined.by_deter), []
        for feature, after, draw, shake in zip(features, features[1:], draws, noise):
            action, known = self.step(weights, joined, known, feature, after, draw, shake)
            actions.append(action)
        return features, torch.stack(actions)

    def _step(self, weights: dict[str, Tensor], joined: Together, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        known, feature, after, draw, noise = inputs
        found, action, known = functional_call(self.module, weights, (joined, known, feature, draw, noise))
        for place, part in zip(after.split([part.shape[-1] for part in found], -1), found):
            place.copy_(part)
        return action, known


def agent_of(size: str, device: str, folder: str, **options: Any) -> Any:
    """An agent of a published size for Atari's 18 actions."""
    config = reverie.configure(
        "dreamer_v3", size, task="atari_pong", env__atari__all_actions=True, device=device, logdir=folder,
        envs__count=1, envs__backend="serial", run__fast="off", log__tensorboard=False, replay__capacity=10_000,
        **options,
    )  # fmt: skip
    parts = make_parts(config)
    parts.close()
    return parts.agent


def figures(size: str, device: str) -> dict[str, float]:
    """How far all sides are apart, and on a GPU what they take."""
    with tempfile.TemporaryDirectory() as folder:
        agent = agent_of(size, device, folder)
    rssm, behavior = agent.world.rssm, agent.behavior
    with torch.no_grad():
        for weight in agent.parameters():  # so that no scale is 1, no bias 0, and actions differ
            weight.add_(torch.randn_like(weight), alpha=0.02)
    numbers, starts = torch.Generator(device).manual_seed(0), STARTS if device == "cuda" else 16
    drawn = torch.randint(rssm.latent.classes, (starts, rssm.latent.groups), device=device)
    start = State(torch.randn(starts, rssm.deter, device=device).tanh(), rssm.latent.unpack(drawn))
    shape = (HORIZON, starts)
    inputs = start, behavior.policy.noise(shape, numbers), rssm.latent.noise(shape, numbers)
    names = [APART, JOINED]
    if device == "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        names += [KERNELS] if not unsuited(rssm, behavior, True) else []
    sides = {name: side_of(name, rssm, behavior, device) for name in names}
    found = {}
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, device == "cuda"):
        features, actions = sides[APART](rssm, *inputs)
        for name in names[1:]:
            theirs, also = sides[name](rssm, *inputs)
            same = (actions == also).all(-1).all(0) & ((features - theirs).abs().amax((0, 2)) < 0.5)
            found[f"{name}: same draws"] = same.float().mean().item()  # rounding sends some draws to another class
            found[f"{name}: apart by"] = (features - theirs)[:, same].abs().max().item()
        if device == "cuda":
            found |= timed(sides, partial(_dreamt, rssm=rssm, inputs=inputs))
    return found


def side_of(name: str, rssm: RSSM, behavior: Behavior, device: str) -> Any:
    """What dreams in the way of that name."""
    if name == KERNELS:
        return KernelDreaming(rssm, behavior, torch.bfloat16 if device == "cuda" else torch.float32)
    return Dreaming(rssm, behavior) if name == APART else JoinedDreaming(rssm, behavior)


def whole(size: str, names: list[str]) -> dict[str, float]:
    """Milliseconds of an update with dreams in each of these ways, in turns."""
    words = argparse.Namespace(device="cuda", fast="compile")
    calls: dict[str, Callable[[], Any]] = {}
    with ExitStack() as held:
        for name in names:
            folder = held.enter_context(tempfile.TemporaryDirectory())
            config = config_of(words, MIDDLE["cuda"] | {"model": size}, 16, folder)
            parts = make_parts(config)
            parts.close()
            agent = parts.agent
            assert isinstance(agent, Dreamer)
            dream = agent.behavior.dreamt = side_of(name, agent.world.rssm, agent.behavior, "cuda")
            if name != KERNELS:
                dream.step = torch.compile(dream.step, dynamic=False)
            calls[name] = update_of(config, parts, Path(folder))
        watch = Stopwatch(torch.device("cuda"), 1, 1.0)
        for call in calls.values():
            watch.block(call, WARMUP + 1)
        turns = [{name: watch.measure(call).milliseconds for name, call in calls.items()} for _ in range(TURNS)]
    return {f"update, {name}, ms": median(turn[name] for turn in turns) for name in names}


def _dreamt(dream: Dream, rssm: RSSM, inputs: tuple[State, Tensor, Tensor]) -> Tensor:
    with torch.autocast(inputs[1].device.type, torch.bfloat16):
        return dream(rssm, *inputs)[0]


def timed(sides: dict[str, Any], dreamt: Callable[[Dream], Tensor]) -> dict[str, float]:
    """Milliseconds of a dream on each side."""
    for name, dream in sides.items():
        if name != KERNELS:
            dream.step = torch.compile(dream.step, dynamic=False)
    turns = [{name: milliseconds(partial(dreamt, dream)) for name, dream in sides.items()} for _ in range(TURNS)]
    return {f"{name}, ms": median(turn[name] for turn in turns) for name in sides}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["12m", "50m", "200m"], help="published sizes")
    parser.add_argument("--whole", action="store_true", help="whole updates, too")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="where to leave the figures, each size as soon as it is known")
    words = parser.parse_args()
    keep_compiled()
    told: dict[str, Any] = {"torch": torch.__version__}
    for size in words.sizes:
        told[size] = figures(size, words.device)
        if words.whole and words.device == "cuda":
            told[size] |= whole(size, [name for name in (APART, JOINED, KERNELS) if f"{name}, ms" in told[size]])
        print(f"{size:5} " + ", ".join(f"{name} {value:.4g}" for name, value in told[size].items()), flush=True)
        if words.json:
            words.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
