"""Dreamer's parts as programs of layers for a CPU, which run without Python between their operations."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType

from torch import Tensor, nn

from ..data.rows import Batch
from ..nn.actions import bounded_normal
from ..nn.heads import NumberHead
from ..nn.native.back import Remembering
from ..nn.native.descent import NativeStep
from ..nn.native.entropy import NativeEntropy
from ..nn.native.heads import NativeHead, expectation
from ..nn.native.layered import Layered
from ..nn.native.machine import Unfit, machine, ours, plainly
from ..nn.native.memory import Memory
from ..nn.native.program import ALWAYS, LAST, Kind
from ..nn.optim import Stepper
from ..nn.outputs import TwoHot
from ..world.model import WorldModel
from ..world.native import NativePrior, NativeScan, checked, drawn, moved, outputs
from ..world.rssm import RSSM, State
from .behavior import Behavior
from .explorer import Explorer
from .filterer import Calculation

LOG = logging.getLogger("reverie")

HALF_FROM = 256
"""Numbers of the deterministic state from which on most of an update's time would go into products in float32."""


class Nativized:
    """Updates whose filter, dreams and expectations run as programs, wherever those can be made.

    They are made before anything is learned: whoever only acts waits for no compiler.
    """

    def __init__(self, world: WorldModel, behaviors: Iterable[Behavior], steppers: Iterable[Stepper]) -> None:
        self.world, self.behaviors, self.steppers = world, list(behaviors), list(steppers)
        self.done, self.memory = False, Memory()

    def __call__(self, update: Calculation, rows: Batch) -> Batch:
        """What an update gives."""
        self.ready()
        with self.memory:
            return update(rows)

    def ready(self) -> None:
        """Make the programs, if they are not made yet; whoever learns outside of updates asks for it first."""
        if self.done:
            return
        self.done = True
        try:
            machine()
        except Unfit as reason:
            LOG.warning("updates run operation by operation, which is slower: %s", reason)
            return
        nativize(self.world, self.behaviors, self.memory, rounds(self.world))
        for stepper in self.steppers:
            _replace(stepper, "step", partial(NativeStep, stepper))


def rounds(world: WorldModel) -> bool:
    """Whether programs take their products in bfloat16, which small ones gain nothing by."""
    return world.config.precision == "auto" and world.rssm.deter >= HALF_FROM and machine().halves() > 0


def nativize(world: WorldModel, behaviors: list[Behavior], memory: Memory, half: bool) -> None:
    """Let layers, the filter, dreams and losses run as programs; what cannot runs as it is."""
    _replace(world.rssm, "scan", lambda: NativeScan(world.rssm, half))
    _replace(world.rssm, "prior", lambda: NativePrior(world.rssm, half))
    for behavior in behaviors:
        if not behavior.through_dynamics:
            _replace(behavior, "dreamt", partial(dreaming, world, behavior, memory, half))
    for head in dict.fromkeys(head for behavior in behaviors for head in advisers(world, behavior)):
        _replace(head, "pred", partial(NativeHead, head, memory, half))
        _replace(head, "forward", partial(Layered, head, head.body, head.linear, memory=memory, half=half))
        if isinstance(head.output, TwoHot):
            _replace(head.output, "cross_entropy", partial(NativeEntropy, head.output))
    coders = [getattr(part, "dense", None) for part in (world.encoder, world.decoder, world.previous)]
    for layers in [*coders, *(behavior.actor for behavior in behaviors)]:
        if layers is not None:
            _replace(layers, "forward", partial(Layered, layers, layers, memory=memory, half=half))


def advisers(world: WorldModel, behavior: Behavior) -> list[NumberHead]:
    """The heads that an update asks about dreams."""
    heads = (world.reward_head, world.cont_head, behavior.critic, behavior.slow)
    return [head for head in heads if head is not None]


def dreaming(world: WorldModel, behavior: Behavior, memory: Memory, half: bool) -> NativeDreaming:
    """Dreams as a program, which asks the heads as well where that fits."""
    try:
        return NativeDreaming(world.rssm, behavior, advisers(world, behavior), memory, half)
    except Unfit as reason:
        alone = NativeDreaming(world.rssm, behavior, [], memory, half)
        LOG.info("dreams do not ask the heads as they go, which is slower: %s", reason)
        return alone


def _replace(owner: object, name: str, make: Callable[[], object]) -> None:
    try:
        setattr(owner, name, make())
    except Unfit as reason:
        LOG.info("%s of %s runs operation by operation, which is slower: %s", name, type(owner).__name__, reason)


class NativeDreaming:
    """Does what `Behavior.dreamt` does where no gradient goes through dreams; what heads expect there is remembered."""

    def __init__(
        self, rssm: RSSM, behavior: Behavior, heads: list[NumberHead], memory: Memory, half: bool = False
    ) -> None:
        self.behavior, self.heads, self.memory = behavior, heads, memory
        ours(behavior, Behavior, Explorer)
        latent, self.policy, self.program = checked(rssm), behavior.policy, Remembering(half)
        program, sizes = self.program, {"deter": rssm.deter, "stoch": latent.size}
        state = {name: program.columns(size) for name, size in sizes.items()}
        program.steps = (0, 1)
        for name, size in sizes.items():
            program.load(name, size, state[name])
        feature = [(state[name], size) for name, size in sizes.items()]
        self._foresee(feature)
        program.steps = (0, LAST)  # at which nothing is done any more
        embedded = self._embedded(feature, rssm)
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

    def _foresee(self, feature: list[tuple[int, int]]) -> None:
        """What heads expect of every state, and of the critic what its loss needs."""
        program = self.program
        program.steps = (0, ALWAYS)
        for number, head in enumerate(self.heads):
            learns = head is self.behavior.critic
            program.of = f"{number}/" if learns else None
            with program.scratch():
                columns = expectation(program, feature, head)
                for name in ("expected", "outputs") if learns else ("expected",):
                    program.store_new(f"{number}/{name}", *columns[name])

    def _embedded(self, feature: list[tuple[int, int]], rssm: RSSM) -> int:
        """The columns of an action's share of the cell, and of the actor what its loss needs."""
        program, layers = self.program, nn.Sequential(rssm.cell.action_in)
        found = program.columns(outputs(layers))
        with program.scratch():
            program.of = "actor/"
            column, count = program.dense(feature, self.behavior.actor)
            program.store_new("actor/outputs", column, count)
            program.of = None
            if not math.isinf(self.behavior.limit):
                column, raw = program.columns(count), column
                program.add(Kind.LIMIT, a=raw, b=column, k=count, high=self.behavior.limit)
            embedded, count = program.dense([(self._acted(column), self.size)], layers)
            program.add(Kind.COPY, a=embedded, b=found, k=count)
        return found

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
        program.add(Kind.LIMIT, a=action, b=limited, k=self.size, high=1.0)
        return limited

    def __call__(self, rssm: RSSM, start: State, draws: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Features (H + 1, B, F) and actions (H, B, A) of dreams from a start (B,), with the weights of now."""
        (steps, rows), first = draws.shape[:2], start.feature
        features, actions = first.new_empty(steps + 1, *first.shape), first.new_empty(steps, rows, self.size)
        features[0] = first
        deter, stoch = features.split([rssm.deter, rssm.latent.size], -1)
        given = {"deter": deter[0], "stoch": stoch[0], "after_deter": deter[1:], "after_stoch": stoch[1:]}
        given |= {"draw": draws.contiguous(), "noise": noise.flatten(2).contiguous(), "action": actions}
        kept = {name: self._room(name, first, steps) for name in self.program.remembered}
        self.program.run(given | kept, rows, steps + 1)
        owners = {"actor/": self.behavior.actor} | {f"{number}/": head for number, head in enumerate(self.heads)}
        for of, owner in owners.items():
            found = {name.removeprefix(of): each.flatten(0, 1) for name, each in kept.items() if name.startswith(of)}
            self.memory.put(owner, features.flatten(0, 1), found)
        return features, actions

    def _room(self, name: str, start: Tensor, steps: int) -> Tensor:
        """Where what is remembered goes: the actor acts at all states but the last."""
        times = steps if name.startswith("actor/") else steps + 1
        return start.new_empty(times, len(start), self.program.remembered[name])
