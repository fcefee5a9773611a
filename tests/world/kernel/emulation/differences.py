"""Which phase of the kernels is first wrong.

Every phase is compared by itself, from what the kernels themselves have made before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from reverie.world.kernel.program import Found
from reverie.world.rssm import State

from .phases import Phases

LIMIT = 2e-3
"""Largest root mean square of errors, as a share of that of the values."""


class Pair(NamedTuple):
    """A value that a phase has made at a step, and what it should be."""

    phase: str
    value: str
    step: int
    ours: Tensor
    theirs: Tensor


def forward_pairs(phases: Phases, f: Found, start: State, inputs: tuple[Tensor, ...]) -> Iterator[Pair]:
    """Every phase of every step, in order."""
    first, acted, embedded, noise = inputs
    f = {name: value.float() for name, value in f.items()}
    yield Pair("project", "parts", -1, f["parts"][0], phases.project(f["half"][0]))
    yield from next_inputs(phases, f, -1, len(first))
    for t in range(len(first)):
        reset, before = first[t].unsqueeze(-1), f["deter"][t - 1] if t else start.deter
        mixed, _ = phases.mix(f["half"][t], f["summary"][t], f["latent"][t], acted[t].float(), reset)
        yield Pair("mix", "mixed", t, f["mixed"][t], mixed)
        power = f["mixed"][t].square().unflatten(-1, (-1, phases.shape.tile)).sum(-1)
        yield Pair("mix", "power", t, f["power"][t], power)
        deter, gates, scale = phases.advance(f["mixed"][t], f["power"][t], before, reset)
        yield Pair("advance", "scale", t, f["scale"][t], scale)
        yield Pair("advance", "gates", t, f["gates"][t], gates)
        yield Pair("advance", "deter", t, f["deter"][t], deter)
        yield Pair("advance", "half", t, f["half"][t + 1], phases.round(f["deter"][t]))
        yield Pair("project", "parts", t, f["parts"][t + 1], phases.project(f["half"][t + 1]))
        params, _, seen = phases.infer(f["parts"][t + 1], embedded[t].float(), noise[t])
        yield Pair("infer", "seen", t, f["seen"][t], seen)
        yield Pair("infer", "params", t, f["params"][t], params)
        yield Pair("infer", "stoch", t, f["stoch"][t], drawn(f["params"][t], noise[t]))
        yield Pair("infer", "drawn", t, f["drawn"][t + 1], f["stoch"][t])
        yield from next_inputs(phases, f, t, len(first))


def next_inputs(phases: Phases, f: Found, t: int, steps: int) -> Iterator[Pair]:
    """What is made of the state after step t for the one that follows, if one does."""
    if t + 1 < steps:
        yield Pair("summarise", "summary", t, f["summary"][t + 1], phases.summarise(f["parts"][t + 1]))
        yield Pair("embed", "latent", t, f["latent"][t + 1], phases.embed(f["drawn"][t + 1]))


def drawn(params: Tensor, noise: Tensor) -> Tensor:
    """The draw (B, Z) by these log-probabilities."""
    below = params.exp().cumsum(-1)
    chosen = (below < noise.reshape(*below.shape[:-1], 1) * below[..., -1:]).sum(-1)
    return torch.nn.functional.one_hot(chosen.clamp(max=below.shape[-1] - 1), below.shape[-1]).float().flatten(-2)


def reverse_pairs(phases: Phases, f: Found, r: Found, first: Tensor, goals: tuple[Tensor, ...]) -> Iterator[Pair]:
    """Every phase of every step backwards, in order."""
    f, r = ({name: value.float() for name, value in found.items()} for found in (f, r))
    carried = torch.zeros_like(r["total_deter"][0])
    for t in reversed(range(len(first))):
        stoch, deter = goals[1][t], goals[0][t] + carried
        if t + 1 < len(first):
            reset, shared = first[t + 1].unsqueeze(-1), r["d_shared"][t + 1]
            stoch = stoch + phases.undraw(shared, f["latent"][t + 1], reset)
            deter = deter + r["d_summary"][t] @ phases.w["w_summary"]
            summary = phases.unsummarise(shared, f["summary"][t + 1], reset)
            yield Pair("unsummarise", "d_summary", t, r["d_summary"][t], summary)
        yield Pair("undraw", "total_stoch", t, r["total_stoch"][t], stoch)
        d_logits = phases.undraw_logits(r["total_stoch"][t], goals[2][t], f["params"][t])
        yield Pair("undraw", "d_logits", t, r["d_logits"][t], d_logits)
        yield Pair("ungate", "total_deter", t, r["total_deter"][t], deter)
        if not t:
            break  # no gradient goes to the start
        yield Pair("uninfer", "d_inferred", t, r["d_inferred"][t], phases.uninfer(r["d_logits"][t]))
        reset = first[t].unsqueeze(-1)
        before, mixed, scale = f["deter"][t - 1].masked_fill(reset, 0), f["mixed"][t], f["scale"][t]
        d_gates, past = phases.ungate(r["total_deter"][t], r["d_inferred"][t], f["seen"][t], f["gates"][t], before)
        yield Pair("ungate", "d_gates", t, r["d_gates"][t], d_gates)
        yield Pair("tilt", "tilted", t, r["tilted"][t], phases.tilt(r["d_gates"][t], mixed, scale)[0])
        lean = (r["tilted"][t] * mixed * scale.unsqueeze(-1)).unflatten(-1, (-1, phases.shape.tile)).sum(-1)
        yield Pair("tilt", "lean", t, r["lean"][t], lean)
        shared, carried = phases.unmix(r["tilted"][t], r["lean"][t], mixed, scale, past, reset)
        yield Pair("unmix", "d_shared", t, r["d_shared"][t], shared)


def first_wrong(pairs: Iterable[Pair]) -> str:
    """Phase, value, step and places of the first value that is off; empty if all are right."""
    for phase, value, step, ours, theirs in pairs:
        off = (ours - theirs).abs() / theirs.square().mean().sqrt().clamp(min=1e-6)
        off = off.nan_to_num(1e9)
        if value == "stoch" and int((off > 0).sum()) <= 8:  # a few draws may fall to either side of a boundary
            continue
        if off.square().mean().sqrt() < LIMIT:
            continue
        bad = off >= 20 * LIMIT
        places = [sorted(set(axis)) for axis in zip(*bad.nonzero().tolist())]
        return (
            f"phase {phase}, value {value} {tuple(ours.shape)}, step {step}: {int(bad.sum())} of {bad.numel()} off, "
            f"{int(ours.isnan().sum())} not numbers; places {[axis[:20] for axis in places]}; "
            f"found {ours[bad][:4].tolist()}, expected {theirs[bad][:4].tolist()}"
        )
    return ""
