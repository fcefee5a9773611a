"""Optimisers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..config.dreamer import StepConfig
from . import ranks

BETAS = (0.9, 0.999)
"""How slowly the running averages of gradients and of their squares move."""

BLOCK = 256
"""Parameters whose gradients are cut one by one are laid out in blocks of so many numbers."""

LEAST_LENGTH = 1e-3
"""Tensors shorter than this are taken for this long when gradients are cut to a share of their length."""


def cut_together(layers: Sequence[nn.Linear]) -> None:
    """Say that layers are parts of one, so that a `Stepper` cuts the gradients of their weights as one."""
    for layer in layers[1:]:
        layer.weight.cut_with = layers[0].weight  # type: ignore[attr-defined]


def cut_apart(layer: nn.Linear, sizes: list[int]) -> None:
    """Say that so many outputs each are layers of their own, so that a `Stepper` cuts their gradients apart."""
    for parameter in layer.parameters():
        parameter.cut_sizes = sizes  # type: ignore[attr-defined]


class Flat:
    """Parameters as views of one block, and their gradients as views of another.

    Zeroing, measuring, cutting and stepping are then a few operations instead of a few per parameter, which is most
    of the cost of small networks. Each begins at a multiple of `block`.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], block: int = 1) -> None:
        self.parameters, self.block = list(parameters), block
        first = self.parameters[0]
        self.blocks = [-(-parameter.numel() // block) for parameter in self.parameters]
        self.flat = torch.zeros(sum(self.blocks) * block, dtype=first.dtype, device=first.device)
        self.gradient, self.mean, self.square = (torch.zeros_like(self.flat) for _ in range(3))
        self.count = torch.zeros((), device=first.device)
        self.views: list[Tensor] = []
        """Each parameter's part of the gradient."""
        self._lay()

    def _lay(self) -> None:
        """Lay the parameters and their gradients into the blocks."""
        offset = 0
        self.views.clear()
        for parameter, blocks in zip(self.parameters, self.blocks):
            shape, stride = parameter.shape, parameter.stride()
            parameter.data = self.flat.as_strided(shape, stride, offset).copy_(parameter.data)
            self.views.append(self.gradient.as_strided(shape, stride, offset))
            parameter.grad = self.views[-1]
            offset += blocks * self.block

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copied or unpickled parameters lie anywhere, until now."""
        self.__dict__.update(state)
        self._lay()

    def state_dict(self) -> dict[str, Any]:
        """The optimiser's state; the parameters are saved with their modules."""
        return {"mean": self.mean, "square": self.square, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        for name in ("mean", "square", "count"):
            getattr(self, name).copy_(state[name])


class FlatAdam(Flat):
    """Adam over all parameters as one tensor, with the gradient's length cut first.

    The step is torch's own fused kernel, called directly: `torch.optim.Adam` adds five times its time around it. A
    step with a loss or gradients that are not finite changes nothing.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, eps: float) -> None:
        super().__init__(parameters)
        self.lr: float | Tensor = lr
        """A tensor where a captured graph is to read it anew at each step."""
        self.eps = eps

    def step(self, loss: Tensor, max_norm: float) -> tuple[Tensor, Tensor]:
        """Step down the gradient of a loss, first scaled to at most `max_norm` if that is not 0.

        The length it had, and whether all was finite and so it was done.
        """
        self.gradient.zero_()
        loss.backward()
        with torch.no_grad():
            self.gradient[:1] += 0 * loss.detach()  # a loss that is not finite is so for all processes
            norm = ranks.average_(self.gradient).norm()
            finite = norm.isfinite()
            if max_norm > 0:
                self.gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
            self.count += finite
            torch._fused_adam_(
                [self.flat], [self.gradient], [self.mean], [self.square], [], [self.count],
                lr=self.lr, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=self.eps, amsgrad=False, maximize=False,
                found_inf=(~finite).float(),
            )  # fmt: skip
        return norm, finite

    def state_dict(self) -> dict[str, Any]:
        """The optimiser's state; the parameters are saved with their modules."""
        return {"lr": float(self.lr)} | super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.lr = renewed(self.lr, float(state["lr"]))
        super().load_state_dict(state)


def renewed(old: float | Tensor, value: float) -> float | Tensor:
    """A number that has changed; where it is a tensor, the same one with that value."""
    return old.fill_(value) if isinstance(old, Tensor) else value


class Stepper(Flat):
    """The optimiser of Dreamer agents: Adam or LaProp, gradients cut for each layer's tensors or all together.

    LaProp divides gradients by their running size and then averages them, Adam the other way round. A step that
    is not to be made changes nothing.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], config: StepConfig) -> None:
        super().__init__(parameters, BLOCK)
        self.config = config
        device = self.flat.device
        self.share = torch.ones((), device=device)
        """What is left of the learning rate."""
        numbers = {id(parameter): number for number, parameter in enumerate(self.parameters)}
        partners = [id(getattr(each, "cut_with", each)) for each in self.parameters]
        self.groups = [numbers.get(partner, number) for number, partner in enumerate(partners)]
        """The parameter that each one's gradient is cut with: mostly itself."""
        sizes = [getattr(each, "cut_sizes", ()) for each in self.parameters]
        self.apart = {number: list(each) for number, each in enumerate(sizes) if len(each) > 1}
        """Parameters whose gradients are cut in parts of so many rows each."""
        self.whole = torch.tensor([number not in self.apart for number in range(len(sizes))], device=device)
        self.partner = torch.tensor(self.groups, device=device)
        """The same, as indices on the device."""
        self.owner = torch.arange(len(sizes), device=device).repeat_interleave(torch.tensor(self.blocks, device=device))
        """The parameter that each block is of."""
        self.lengths = torch.zeros(len(sizes), device=device)
        """Those of the parameters' gradients, as they were last measured."""

    def zero(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self.parameters:
            parameter.grad = None  # so that what a backward pass finds is kept as it is, and not added

    @torch.no_grad()
    def norm(self) -> Tensor:
        """The length of the gradient, first averaged over all processes; not finite if any of it is not."""
        found = [(view, each.grad) for view, each in zip(self.views, self.parameters) if each.grad is not None]
        self.gradient.zero_()  # between the parameters too, where a factor that was not finite has left its mark
        if found:
            torch._foreach_copy_([view for view, _ in found], [grad for _, grad in found])
        gradient = ranks.average_(self.gradient)
        if gradient.is_cpu:
            return gradient.norm()  # parameters are measured one by one in a step, or by C code
        self.lengths = self._lengths(gradient)
        return self.lengths.norm()

    @torch.no_grad()
    def step(self, norm: Tensor, finite: Tensor) -> None:
        """Step down the gradients that `norm` has gathered, if they are finite."""
        config = self.config
        if self.gradient.is_cpu and config.agc > 0:
            self.lengths = self._lengths(self.gradient)
        share = (config.clip / (norm + 1e-6)).clamp(max=1.0) if config.clip > 0 else torch.ones_like(norm)
        for number, sizes in self.apart.items() if config.agc > 0 else ():
            for weight, gradient in zip(self.parameters[number].split(sizes), self.views[number].split(sizes)):
                limit = weight.norm().clamp(min=LEAST_LENGTH) * config.agc
                gradient.mul_((limit / (share * gradient.norm()).clamp(min=1e-30)).clamp(max=1.0))
        self.descend(share, self._lengths(self.flat) if config.agc > 0 else self.lengths, finite)

    def descend(self, share: Tensor, lengths: Tensor, finite: Tensor) -> None:
        """Step down that share of the gradients, cut to the lengths of the parameters."""
        config = self.config
        gradient = self._cut(share, lengths) if config.agc > 0 else self.gradient * share
        count, rate = self.count + 1, config.lr * self.share
        square = torch.lerp(self.square, gradient.square(), 1 - BETAS[1])
        size = (square / (1 - BETAS[1] ** count)).sqrt_().add_(config.eps)
        if config.kind == "laprop":
            mean = torch.lerp(self.mean, gradient / size, 1 - BETAS[0])
            change = mean / (1 - BETAS[0] ** count)
        else:
            mean = torch.lerp(self.mean, gradient, 1 - BETAS[0])
            change = mean / size.mul_(1 - BETAS[0] ** count)
        warm = (count / config.warmup).clamp(max=1.0) if config.warmup else torch.ones_like(count)
        moved = self.flat * (1 - config.decay) - change * (rate * warm)
        for old, new in ((self.flat, moved), (self.mean, mean), (self.square, square), (self.count, count)):
            old.copy_(torch.where(finite, new, old))

    def _cut(self, share: Tensor, lengths: Tensor) -> Tensor:
        """That share of the gradient, each parameter's at most a part of its own length, some cut together."""
        squares = torch.stack([lengths, self.lengths * share]).square()
        own, gradient = torch.zeros_like(squares).index_add(1, self.partner, squares).sqrt()[:, self.partner]
        shares = (own.clamp(min=LEAST_LENGTH) * self.config.agc / gradient.clamp(min=1e-30)).clamp(max=1.0)
        shares = torch.where(self.whole, shares, 1.0) * share
        return (self.gradient.view(-1, BLOCK) * shares[self.owner].unsqueeze(1)).flatten()

    def _lengths(self, flat: Tensor) -> Tensor:
        """The length of each parameter's part."""
        return torch.stack(torch._foreach_norm(flat.split([blocks * BLOCK for blocks in self.blocks])))
