"""Optimisers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class FlatAdam:
    """Adam over all parameters as one tensor, with the gradient's length cut first.

    The parameters become views of one block, and so do their gradients. Zeroing, measuring, cutting and stepping are then
    a few operations instead of a few per parameter, which is most of the cost of small networks.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, eps: float) -> None:
        parameters = list(parameters)
        first = parameters[0]
        size = sum(parameter.numel() for parameter in parameters)
        self.flat = nn.Parameter(torch.empty(size, dtype=first.dtype, device=first.device))
        self.flat.grad = torch.zeros_like(self.flat)
        offset = 0
        for parameter in parameters:
            shape, stride = parameter.shape, parameter.stride()
            place = self.flat.data.as_strided(shape, stride, offset)
            parameter.data = place.copy_(parameter.data)
            parameter.grad = self.flat.grad.as_strided(shape, stride, offset)
            offset += parameter.numel()
        self.adam = torch.optim.Adam([self.flat], lr=lr, eps=eps, fused=True)

    @property
    def lr(self) -> float:
        """The learning rate."""
        return float(self.adam.param_groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        self.adam.param_groups[0]["lr"] = value

    def step(self, loss: Tensor, max_norm: float) -> Tensor:
        """Step down the gradient of a loss, first scaled to at most `max_norm`; the length it had."""
        gradient = self.flat.grad
        assert gradient is not None
        gradient.zero_()
        loss.backward()
        norm = gradient.norm()
        gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        self.adam.step()
        return norm

    def state_dict(self) -> dict[str, Any]:
        """The optimiser's state; the parameters are saved with their modules."""
        return self.adam.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.adam.load_state_dict(state)
