"""Optimisers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class FlatAdam:
    """Adam over all parameters as one tensor, with the gradient's length cut first.

    The parameters become views of one block, and so do their gradients. Zeroing, measuring, cutting and stepping are
    then a few operations instead of a few per parameter, which is most of the cost of small networks. The step is
    torch's own fused kernel, called directly: `torch.optim.Adam` adds five times its time around it.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, eps: float) -> None:
        self.lr, self.eps = lr, eps
        parameters = list(parameters)
        first = parameters[0]
        size = sum(parameter.numel() for parameter in parameters)
        self.flat = torch.empty(size, dtype=first.dtype, device=first.device)
        self.gradient, self.mean, self.square = (torch.zeros_like(self.flat) for _ in range(3))
        self.count = torch.zeros((), device=first.device)
        offset = 0
        for parameter in parameters:
            shape, stride = parameter.shape, parameter.stride()
            parameter.data = self.flat.as_strided(shape, stride, offset).copy_(parameter.data)
            parameter.grad = self.gradient.as_strided(shape, stride, offset)
            offset += parameter.numel()

    def step(self, loss: Tensor, max_norm: float) -> Tensor:
        """Step down the gradient of a loss, first scaled to at most `max_norm` if that is not 0; the length it had."""
        self.gradient.zero_()
        loss.backward()
        with torch.no_grad():
            norm = self.gradient.norm()
            if max_norm > 0:
                self.gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
            self.count += 1
            torch._fused_adam_(
                [self.flat], [self.gradient], [self.mean], [self.square], [], [self.count],
                lr=self.lr, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=self.eps, amsgrad=False, maximize=False,
            )  # fmt: skip
        return norm

    def state_dict(self) -> dict[str, Any]:
        """The optimiser's state; the parameters are saved with their modules."""
        return {"lr": self.lr, "mean": self.mean, "square": self.square, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.lr = float(state["lr"])
        for name in ("mean", "square", "count"):
            getattr(self, name).copy_(state[name])
