"""Where the time of a Dreamer's update goes: each part on its own, forward and with its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..agents.behavior import Imagined
from ..agents.dreamer import Dreamer
from ..agents.plan2explore import Plan2Explore
from ..data.rows import Batch
from ..nn.frozen import frozen
from ..nn.graph import Graphed
from ..training.rehearsal import Rehearsal
from ..world.model import Seen
from ..world.rssm import State
from .bench import Stopwatch, captured

SHARE = 0.1
"""The part of the seconds for the whole update that each of its parts is measured for."""


@dataclass(frozen=True)
class Part:
    """A part of an update: a call, and what of its outcome gradients are taken of, if they are."""

    name: str
    forward: Callable[[], Any]
    goals: Callable[[Any], Iterable[Tensor]] | None = None
    on_host: bool = False
    """Whether the host takes part, so that it cannot be a graph of the GPU."""

    def both(self) -> None:
        """The call and its gradients."""
        assert self.goals is not None
        torch.stack([goal.float().sum() for goal in self.goals(self.forward())]).sum().backward()


class Anatomy:
    """The parts of an agent's update on one sampled batch, each fed what the part before it gave."""

    def __init__(self, agent: Dreamer, rehearsal: Rehearsal) -> None:
        self.agent, self.rehearsal, self.world, self.behavior = agent, rehearsal, agent.world, agent.behavior
        self.batch = self.sampled()
        self.written = agent.learn_replay(self.batch).writeback
        if agent.replay.start == "carried":
            carry = agent.initial_carry(len(self.batch["is_first"]))
            self.batch |= {f"carry/{name}": value for name, value in carry.items()}
        with torch.no_grad():  # the state it begins at may be learned, and its gradient could be taken only once
            self.window = agent.window(self.batch)
        self.embed = leaf(self.encoder())
        state, posterior = self.scan()
        self.state, self.posterior = State(leaf(state.deter), leaf(state.stoch)), leaf(posterior)
        late = slice(-self.behavior.config.starts or None, None)
        self.ends = State(leaf(state.deter[:, late]), leaf(state.stoch[:, late]))
        self.rows: Batch = {key: x[:, late] for key, x in self.window.rows.items()}
        self.start = self.ends.detach().flat()
        features, actions = self.imagination()
        self.features, self.actions = self.kept(features), self.kept(actions)
        self.dream = Imagined(self.features, actions.detach(), *(self.kept(x) for x in self.foresee()))
        self.boot = torch.zeros(self.rows["is_first"].shape, device=agent.device)
        self.finite = torch.ones((), dtype=torch.bool, device=agent.device)

    def parts(self) -> Iterator[Part]:
        """All parts, in the order of an update."""
        dreamt = self.behavior.through_dynamics  # only then do gradients go back through dreams
        yield Part("replay sampling", self.sampled, on_host=True)
        yield Part("encoder", self.encoder, lambda embed: [embed])
        yield Part("scan", self.scan, lambda found: [*found[0], found[1]])
        yield Part("predictions", self.predictions, dict.values)
        yield Part("imagination", self.imagination, (lambda found: found[:1]) if dreamt else None)
        yield Part("foresee", self.foresee, tuple if dreamt else None)
        yield Part("actor and critic", self.judged, dict.values)
        if self.behavior.config.replay_scale:
            yield Part("replay critic", self.replay_critic, lambda loss: [loss])
        if isinstance(self.agent, Plan2Explore):
            yield Part("explorer", self.explorer, dict.values)
        yield Part("optimiser", self.optimiser)
        yield Part("write-back", self.write_back, on_host=True)

    def encoder(self) -> Tensor:
        """The embeddings of the window."""
        with self.precision():
            return self.world.encoded(self.window.rows)

    def scan(self) -> tuple[State, Tensor]:
        """The states of the window."""
        window = self.window
        with self.precision():
            return self.world.rssm.observe(
                window.start, self.embed, window.action, window.is_first, self.agent.generator
            )

    def predictions(self) -> dict[str, Tensor]:
        """The losses of decoder, heads and latents."""
        with self.precision():
            rows = self.window.rows
            return (
                self.world.reconstructed(self.state, rows) | self.world.predicted(self.state, self.posterior, rows)[0]
            )

    def imagination(self) -> tuple[Tensor, Tensor]:
        """The features and actions of a dream from every state."""
        behavior, rssm, generator = self.behavior, self.world.rssm, self.agent.generator
        shape = (behavior.config.horizon, len(self.start.deter))
        draws, noise = behavior.policy.noise(shape, generator), rssm.latent.noise(shape, generator)
        with self.precision(), self.held():
            return behavior.dreamt(rssm, self.start, draws, noise)

    def foresee(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, discounts and values of a dream."""
        with self.precision(), self.held():
            return self.behavior.foresee(self.world, self.features, self.actions)

    def judged(self) -> dict[str, Tensor]:
        """The losses of actor and critic on a dream."""
        with self.precision():
            return self.behavior.judged(self.dream, self.behavior.returned(self.dream))[0]

    def replay_critic(self) -> Tensor:
        """The critic's loss on replayed rows."""
        with self.precision():
            return self.behavior.replay_loss(self.ends, self.rows, self.boot, self.world.gamma)[0]

    def explorer(self) -> dict[str, Tensor]:
        """The losses of ensemble and explorer, its dreams included."""
        assert isinstance(self.agent, Plan2Explore)
        with self.precision():
            return self.agent.venture(Seen(self.state, self.posterior, self.embed), self.window)[1]()[0]

    def optimiser(self) -> None:
        """A step of every optimiser and of the slow critic."""
        for stepper in self.agent.steppers.values():
            stepper.zero()
            stepper.step(stepper.norm(), self.finite)
        self.behavior.follow(self.finite)

    def sampled(self) -> Batch:
        """A batch of windows."""
        return self.rehearsal.replay.sample(self.rehearsal.config.batch, self.rehearsal.length)

    def write_back(self) -> None:
        """What an update found out, written over the rows of its windows."""
        self.rehearsal.replay.update(self.batch["index"], self.written)

    def precision(self) -> torch.autocast:
        """The arithmetic of the agent's networks."""
        return torch.autocast(self.agent.device.type, torch.bfloat16, enabled=self.agent.in_half)

    def held(self) -> AbstractContextManager[None]:
        """What an agent dreams in: without gradients, or with those that go through the dynamics to the actor."""
        if self.behavior.through_dynamics:
            return frozen(*self.behavior.advisers(self.world))
        return torch.no_grad()

    def kept(self, value: Tensor) -> Tensor:
        """What a part begins with, which gradients go back through if they go that far."""
        return leaf(value) if self.behavior.through_dynamics else value.detach()


def leaf(value: Tensor) -> Tensor:
    """A copy that gradients end at."""
    return value.detach().clone().requires_grad_()


def anatomy(agent: Dreamer, rehearsal: Rehearsal, watch: Stopwatch, whole: float) -> list[dict[str, Any]]:
    """The milliseconds of each part, forward and with gradients, and its share of those of a `whole` update."""
    watch = watch.shorter(SHARE)
    in_graphs = isinstance(agent.updating[agent.lesson], Graphed)
    found: list[dict[str, Any]] = []
    for part in Anatomy(agent, rehearsal).parts():
        graph = in_graphs and not part.on_host
        forward = milliseconds(part.name, part.forward, agent, watch, graph)
        both = milliseconds(part.name, part.both, agent, watch, graph) if part.goals else None
        spent = both or forward
        found.append({"part": part.name, "forward_ms": forward, "ms": spent, "share": spent / whole})
    return found


def milliseconds(name: str, function: Callable[[], Any], agent: Dreamer, watch: Stopwatch, graph: bool) -> float:
    """Milliseconds of one call, as a graph of its own where the update is one too."""
    ready = captured(name, function, [agent.generator]) if graph else function
    watch.block(ready, 1)
    return watch.measure(ready).milliseconds
