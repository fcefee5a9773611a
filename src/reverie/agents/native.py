"""Dreamer's parts as programs of layers for a CPU, which run without Python between their operations."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType

import torch
from torch import Tensor, nn

from ..data.rows import Batch
from ..nn.actions import bounded_normal
from ..nn.heads import NumberHead
from ..nn.native.back import Remembering
from ..nn.native.layered import Layered
from ..nn.native.machine import Unfit, machine, ours, plainly
from ..nn.native.memory import Memory
from ..nn.native.program import ALWAYS, Kind, Program
from ..nn.outputs import Bernoulli, Normal, TwoHot, symexp
from ..world.model import WorldModel
from ..world.native import NativePrior, NativeScan, checked, drawn, moved
from ..world.rssm import RSSM, State
from .behavior import Behavior
from .explorer import Explorer
from .filterer import Calculation

LOG = logging.getLogger("reverie")

FEW = 256
"""Rows below which a head is not worth a program."""


class Nativized:
    """Updates whose filter, dreams and expectations run as programs, wherever those can be made.

    They are made before the first update: whoever only acts waits for no compiler.
    """

    def __init__(self, world: WorldModel, behaviors: Iterable[Behavior]) -> None:
        self.world, self.behaviors, self.done, self.memory = world, list(behaviors), False, Memory()

    def __call__(self, update: Calculation, rows: Batch) -> Batch:
        """What an update gives."""
        if not self.done:
            self.done = True
            nativize(self.world, self.behaviors, self.memory)
        with self.memory:
            return update(rows)


def nativize(world: WorldModel, behaviors: list[Behavior], memory: Memory) -> None:
    """Let the filter, dreams and what heads expect run as programs; what cannot runs as it is."""
    try:
        machine()
    except Unfit as reason:
        LOG.warning("updates run operation by operation, which is slower: %s", reason)
        return
    _replace(world.rssm, "scan", lambda: NativeScan(world.rssm))
    _replace(world.rssm, "prior", lambda: NativePrior(world.rssm))
    for behavior in behaviors:
        if not behavior.through_dynamics:
            _replace(behavior, "dreamt", partial(NativeDreaming, world.rssm, behavior, memory))
    critics = [behavior.critic for behavior in behaviors]
    others = [world.reward_head, world.cont_head, *(behavior.slow for behavior in behaviors)]
    for head in [*critics, *(head for head in others if head is not None)]:
        _replace(head, "pred", partial(NativeHead, head, memory if head in critics else None))
        _replace(head, "forward", partial(Layered, head, head.body, head.linear, memory=memory))
    coders = [getattr(part, "dense", None) for part in (world.encoder, world.decoder, world.previous)]
    for layers in [*coders, *(behavior.actor for behavior in behaviors)]:
        if layers is not None:
            _replace(layers, "forward", partial(Layered, layers, layers, memory=memory))


def _replace(owner: nn.Module, name: str, make: Callable[[], object]) -> None:
    try:
        setattr(owner, name, make())
    except Unfit as reason:
        LOG.info("%s of %s runs operation by operation, which is slower: %s", name, type(owner).__name__, reason)


class NativeDreaming:
    """Does what `Behavior.dreamt` does where no gradient goes through dreams."""

    def __init__(self, rssm: RSSM, behavior: Behavior, memory: Memory) -> None:
        self.behavior, self.memory = behavior, memory
        ours(behavior, Behavior, Explorer)
        if not math.isinf(behavior.limit):
            raise Unfit("its policy's outputs are limited")
        latent, self.policy, self.program = checked(rssm), behavior.policy, Remembering()
        program, sizes = self.program, {"deter": rssm.deter, "stoch": latent.size}
        state = {name: program.columns(size) for name, size in sizes.items()}
        program.steps = (0, 1)
        for name, size in sizes.items():
            program.load(name, size, state[name])
        program.steps = (0, ALWAYS)
        outputs, count = program.dense([(state[name], size) for name, size in sizes.items()], behavior.actor)
        program.store("outputs", outputs, count)
        program.all = True
        action = self._acted(outputs)
        embedded = program.dense([(action, self.size)], nn.Sequential(rssm.cell.action_in))[0]
        deter = moved(program, rssm, state["deter"], state["stoch"], embedded)
        logits, _ = program.dense([(deter, rssm.deter)], nn.Sequential(rssm.prior_net, rssm.prior_out))
        stoch, _ = drawn(program, logits, (latent.groups, latent.classes), latent.unimix, "noise")
        for name, column in (("deter", deter), ("stoch", stoch)):
            program.add(Kind.COPY, a=column, b=state[name], k=sizes[name])
            program.store(f"after_{name}", column, sizes[name])
        program.finish()

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[Behavior, str]]:
        """A copy of the behaviour dreams by itself."""
        return plainly, (self.behavior, "dreamt")

    def _acted(self, outputs: int) -> int:
        """The columns of an action as the cell takes it, from those of the actor's outputs."""
        program, policy = self.program, self.policy
        if len(policy.parts) > 1 or not (policy.discrete or policy.make is bounded_normal):
            raise Unfit("it draws from one kind of classes, or from normals with bounded means")
        part = policy.parts[0]
        self.size = part.size
        if part.groups:
            action, _ = drawn(program, outputs, (part.groups, part.size // part.groups), policy.unimix, "draw")
            program.store("action", action, self.size)
            return action
        action, limited = program.columns(self.size), program.columns(self.size)
        noise, limits = program.load("draw", self.size), policy.limits
        program.add(Kind.NORMAL, a=outputs, b=noise, c=action, k=self.size, low=limits.min, high=limits.max)
        program.store("action", action, self.size)
        program.add(Kind.LIMIT, a=action, b=limited, k=self.size)
        return limited

    def __call__(self, rssm: RSSM, start: State, draws: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Features (H + 1, B, F) and actions (H, B, A) of dreams from a start (B,), with the weights of now."""
        (steps, rows), first = draws.shape[:2], start.feature
        features, actions = first.new_empty(steps + 1, *first.shape), first.new_empty(steps, rows, self.size)
        features[0] = first
        deter, stoch = features.split([rssm.deter, rssm.latent.size], -1)
        given = {"deter": deter[0], "stoch": stoch[0], "after_deter": deter[1:], "after_stoch": stoch[1:]}
        given |= {"draw": draws.contiguous(), "noise": noise.flatten(2).contiguous(), "action": actions}
        kept = {name: first.new_empty(steps, rows, size) for name, size in self.program.remembered.items()}
        outputs = first.new_empty(steps, rows, self.policy.outputs)
        self.program.run(given | kept | {"outputs": outputs}, rows, steps)
        flat = {name: each.flatten(0, 1) for name, each in kept.items()}
        self.memory.put(self.behavior.actor, features.flatten(0, 1), outputs.flatten(0, 1), flat)
        return features, actions


class NativeHead:
    """Does what `NumberHead.pred` does, where no gradient is asked for."""

    def __init__(self, head: NumberHead, memory: Memory | None = None) -> None:
        """With a memory its outputs will be asked for again, with gradients."""
        ours(head, NumberHead)
        self.head, self.memory, output = head, memory, head.output
        self.program = Program() if memory is None else Remembering()
        program, width = self.program, next(head.parameters()).shape[1]
        feature = program.load("feature", width)
        column, size = program.dense([(feature, width)], nn.Sequential(head.body, head.linear))
        if type(output) is TwoHot:
            expected, room, edges = program.columns(1), program.columns(size), program.pointer(output.edges)
            program.add(Kind.EXPECT, a=column, b=expected, c=room, k=size, weight=edges)
        elif type(output) is Bernoulli:
            expected = program.columns(1)
            program.add(Kind.SIGMOID, a=column, b=expected, high=1.0)
        elif type(output) is Normal:
            expected = column
        else:
            raise Unfit(f"it has no {type(output).__name__}")
        program.store("expected", expected, 1)
        if memory is not None:
            program.store("outputs", column, size)
        program.finish()

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[NumberHead, str]]:
        """A copy of the head expects by itself."""
        return plainly, (self.head, "pred")

    def __call__(self, features: Tensor) -> Tensor:
        """The expected number (...)."""
        rows = features.reshape(-1, features.shape[-1]).contiguous()
        if torch.is_grad_enabled() or len(rows) < FEW or features.dtype != torch.float32:
            return type(self.head).pred(self.head, features)
        expected, sizes = rows.new_empty(len(rows), 1), dict(self.program.remembered)
        if self.memory is not None:
            sizes["outputs"] = self.head.output.size
        kept = {name: rows.new_empty(len(rows), size) for name, size in sizes.items()}
        self.program.run({"feature": rows, "expected": expected} | kept, len(rows))
        if self.memory is not None:
            self.memory.put(self.head, rows, kept.pop("outputs"), kept)
        found = expected.reshape(features.shape[:-1])
        return symexp(found) if isinstance(self.head.output, TwoHot) and not self.head.output.raw else found
