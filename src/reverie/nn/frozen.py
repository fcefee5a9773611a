"""Parameters held still while a graph is built through them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Inside, gradients flow through the modules to their inputs but not into their parameters."""
    held = [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]
    for parameter in held:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)
