"""The recurrent state space as programs of layers for a CPU: a step of the cell, the filter over a window and back."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from ..nn.gru import BlockCell, NormCell
from ..nn.native.back import Recalling, Remembering
from ..nn.native.layered import Layered
from ..nn.native.machine import Unfit, ours, plainly
from ..nn.native.program import ALWAYS, Kind, Program
from .latent import Categorical
from .rssm import RSSM, State
from .scan import Scan


def checked(rssm: RSSM) -> Categorical:
    """The latents of a model that programs can be made of."""
    ours(rssm, RSSM)
    ours(rssm.cell, BlockCell, NormCell)
    if rssm.start is not None:
        raise Unfit("its first state is learned")
    ours(rssm.latent, Categorical)
    assert isinstance(rssm.latent, Categorical)
    return rssm.latent


def moved(program: Program, rssm: RSSM, deter: int, stoch: int, acted: int) -> int:
    """The columns of the next deterministic state, from those of state, latent and action's share."""
    cell, size, latent = rssm.cell, rssm.deter, rssm.latent.size
    if isinstance(cell, BlockCell):
        return blocks_moved(program, cell, size, (deter, stoch, acted), latent)
    if not isinstance(cell, NormCell):
        raise Unfit(f"it has no {type(cell).__name__}")
    hidden = outputs(cell.stoch_in)
    program.linear([(stoch, latent)], cell.stoch_in, into=acted)
    x = program.tail(acted, hidden, list(cell.tail))
    gates = program.linear([(deter, size), (x, hidden)], cell.gates)
    after = program.columns(size)
    gates = program.norm(gates, 3 * size, cell.norm, active=None)
    program.add(Kind.GATED, a=gates, b=deter, c=after, k=size)
    return after


def blocks_moved(program: Program, cell: BlockCell, size: int, state: tuple[int, int, int], latent: int) -> int:
    """The same for a cell of blocks."""
    deter, stoch, acted = state
    width, count = size // cell.blocks, cell.blocks
    shares = [program.dense([(deter, size)], cell.deter_in), program.dense([(stoch, latent)], cell.stoch_in)]
    hidden = shares[0][1]
    shares.append((acted, hidden))
    mixed = program.columns(size)
    program.blocks(deter, mixed, cell.mix.weight[:, :width], cell.mix.bias, False, (width, width))
    for index, (column, _) in enumerate(shares):  # every block sees all of these
        seen = cell.mix.weight[:, width + index * hidden : width + (index + 1) * hidden]
        program.blocks(column, mixed, seen, None, True, (0, width))
    x = program.tail(mixed, size, list(cell.tail))
    gates, after = program.columns(3 * size), program.columns(size)
    program.block_linear(x, gates, cell.gates)
    program.keep(gates, 3 * size)
    program.add(Kind.GATED, a=gates, b=deter, c=after, k=width, groups=count)
    program.pointer(cell.mix.weight)
    return after


def drawn(program: Program, logits: int, choices: tuple[int, int], unimix: float, noise: str) -> tuple[int, int]:
    """The columns of a draw of so many choices among so many classes, and of log-probabilities."""
    groups, classes = choices
    params, prob, stoch = (program.columns(groups * classes) for _ in range(3))
    program.keep(logits, groups * classes)
    program.add(Kind.CLASSES, a=logits, b=params, c=prob, k=classes, groups=groups, low=unimix)
    uniform = program.load(noise, groups)
    program.add(Kind.DRAW, a=prob, b=uniform, c=stoch, k=classes, groups=groups)
    return stoch, params


class FilterProgram(Program):
    """The filter over a window (T, B): from the state before and a step's inputs to state and latent's parameters."""

    def __init__(self, rssm: RSSM, *settings: Any) -> None:
        super().__init__(*settings)
        self.rssm, self.latent = rssm, checked(rssm)
        self.sizes = {"deter": rssm.deter, "stoch": self.latent.size}
        self.before = {name: self.columns(size) for name, size in self.sizes.items()}
        self.found: dict[str, tuple[int, int]] = {}
        """First columns and their number of what a step finds."""
        self.given: dict[str, tuple[int, int]] = {}
        """The same of what it is given that gradients are taken of."""

    def step(self) -> None:
        """Add the operations of a step."""
        rssm, latent = self.rssm, self.latent
        first = self.load("is_first", 1)
        state = {name: self.columns(size) for name, size in self.sizes.items()}
        for name, size in self.sizes.items():
            self.add(Kind.RESET, a=self.before[name], b=state[name], c=first, k=size)
        sizes = {"acted": outputs(rssm.cell.action_in), "embedded": rssm.deter_in.out_features}
        self.given = {name: (self.load(name, size), size) for name, size in sizes.items()}
        after = moved(self, rssm, state["deter"], state["stoch"], self.given["acted"][0])
        seen, hidden = self.given["embedded"]
        self.linear([(after, rssm.deter)], rssm.deter_in, into=seen)
        logits, _ = self.dense([(seen, hidden)], nn.Sequential(rssm.posterior_net, rssm.posterior_out))
        stoch, params = drawn(self, logits, (latent.groups, latent.classes), latent.unimix, "noise")
        self.found = {"deter": (after, rssm.deter), "stoch": (stoch, latent.size), "params": (params, latent.size)}


class Forward(FilterProgram, Remembering):
    """The filter from its first step to its last."""

    def __init__(self, rssm: RSSM, half: bool) -> None:
        super().__init__(rssm, half)
        self.steps = (0, 1)
        for name, size in self.sizes.items():
            self.load(f"start_{name}", size, self.before[name])
        self.steps = (0, ALWAYS)
        self.step()
        for name, (column, size) in self.found.items():
            self.store(name, column, size)
        for name, size in self.sizes.items():
            self.add(Kind.COPY, a=self.found[name][0], b=self.before[name], k=size)
        self.finish()


class Backward(FilterProgram, Recalling):
    """The gradients of inputs and weights, from the last step to the first."""

    def __init__(self, rssm: RSSM, learned: list[Tensor], half: bool) -> None:
        super().__init__(rssm, learned, half)
        for name, size in self.sizes.items():
            self.load(f"before_{name}", size, self.before[name])
        self.step()
        forward, shift = list(self.ops), self.width
        self.width *= 2
        carried = {name: self.columns(size) for name, size in self.sizes.items()}
        for name, (column, size) in self.found.items():
            self.load(f"by_{name}", size, shift + column)
        for name, size in self.sizes.items():
            self.add(Kind.ADD, a=carried[name], b=shift + self.found[name][0], k=size)
        self.differentiate(forward, shift, [column for column, _ in self.found.values()])
        for name, (column, size) in self.given.items():
            self.store(f"by_{name}", shift + column, size)
        for name, size in self.sizes.items():
            self.add(Kind.COPY, a=shift + self.before[name], b=carried[name], k=size)
        self.finish()


class NativeScan(Scan):
    """Does what `Scan` does, by programs of layers; as `Scan` does in half precision."""

    def __init__(self, rssm: RSSM, half: bool = False) -> None:
        super().__init__(rssm)
        self.forward, self.backward = Forward(rssm, half), Backward(rssm, list(self.weights.values()), half)

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[RSSM, str]]:
        """A copy of the model filters by itself."""
        return plainly, (self.forward.rssm, "scan")

    def operation(self, is_first: Tensor, acted: Tensor, embedded: Tensor) -> type[torch.autograd.Function]:
        """The programs, where numbers are whole."""
        whole = acted.dtype == embedded.dtype == torch.float32 and is_first.numel() > 0
        return Native if whole else super().operation(is_first, acted, embedded)


class NativePrior:
    """Does what `RSSM.prior` does."""

    def __init__(self, rssm: RSSM, half: bool = False) -> None:
        ours(rssm, RSSM)
        layers = nn.Sequential(rssm.prior_net, rssm.prior_out)
        self.rssm, self.layered = rssm, Layered(layers, layers, half=half)

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[RSSM, str]]:
        """A copy of the model predicts by itself."""
        return plainly, (self.rssm, "prior")

    def __call__(self, deter: Tensor) -> Tensor:
        """Parameters of the predicted latent."""
        return self.rssm.latent.params(self.layered(deter))


class Native(torch.autograd.Function):
    """The programs, with the contract of `Reverse`."""

    @staticmethod
    def forward(
        ctx: Any,
        scan: NativeScan,
        start: State,
        given: tuple[Tensor, Tensor],
        acted: Tensor,
        embedded: Tensor,
        *_: Tensor,
    ) -> tuple[Tensor, ...]:
        """States and parameters (T, B, ...)."""
        inputs = (given[0], acted.detach(), embedded.detach(), given[1])
        steps, batch = given[0].shape
        sizes = {name: size for name, (_, size) in scan.forward.found.items()} | scan.forward.remembered
        found = {name: acted.new_empty(steps, batch, size) for name, size in sizes.items()}
        data = step_data(inputs)
        begin = {f"start_{name}": part.contiguous() for name, part in start._asdict().items()}
        scan.forward.run(found | data | begin, batch, steps)
        before = {name: torch.cat([part[None], found[name][:-1]]) for name, part in start._asdict().items()}
        ctx.scan, ctx.data = scan, data | {name: found[name] for name in scan.forward.remembered}
        ctx.data |= {f"before_{name}": part for name, part in before.items()}
        groups = scan.forward.latent.groups
        return found["deter"], found["stoch"], found["params"].unflatten(-1, (groups, -1))

    @staticmethod
    def backward(ctx: Any, *goals: Tensor) -> tuple[Any, ...]:
        """Gradients of the inputs `acted` and `embedded` and of the weights."""
        by_deter, by_stoch, by_params = (goal.contiguous() for goal in goals)
        given = {"by_deter": by_deter, "by_stoch": by_stoch, "by_params": by_params.flatten(-2)} | ctx.data
        found = {f"by_{name}": torch.empty_like(ctx.data[name]) for name in ctx.scan.backward.given}
        weights = ctx.scan.backward.learn(given | found, by_deter.shape[1], len(by_deter), backwards=True)
        return None, None, None, *found.values(), *weights


def step_data(inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> dict[str, Tensor]:
    """What every step (T, B, ...) of a filter is given, by its name in the programs."""
    first, acted, embedded, noise = inputs
    found = {"is_first": first.float().unsqueeze(-1), "acted": acted, "embedded": embedded, "noise": noise.flatten(2)}
    return {name: value.contiguous() for name, value in found.items()}


def outputs(layer: nn.Module) -> int:
    """The width of a dense layer's outputs."""
    return next(each.out_features for each in layer.modules() if isinstance(each, nn.Linear))
