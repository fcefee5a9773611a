"""Functions that a GPU replays as one graph: thousands of small kernels then start without Python between them."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..config.errors import first_line

LOG = logging.getLogger("reverie")

Tensors = dict[str, Tensor]

WARMUP = 3
"""Calls before a function is captured: libraries choose their kernels and compilers compile in these."""
MOST = 8
"""Shapes of inputs that are captured; beyond that a function runs as it is."""


class Capture:
    """One captured call: where its inputs lie, where its outputs appear, and the graph between them."""

    def __init__(self, function: Callable[[Tensors], Tensors], inputs: Tensors, stream: torch.cuda.Stream,
                 generators: Sequence[torch.Generator]) -> None:  # fmt: skip
        self.inputs = {name: value.clone() for name, value in inputs.items()}
        self.graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self.graph.register_generator_state(generator)
        used = (torch.cuda.default_generators[stream.device_index], *generators)
        drawn = [generator.get_state() for generator in used]
        try:
            with torch.cuda.graph(self.graph, stream=stream):
                self.outputs = function(self.inputs)
        except RuntimeError:
            for generator, state in zip(used, drawn):
                renew(generator, state)
            raise

    def __call__(self, inputs: Tensors) -> Tensors:
        """The outputs, as copies: the next replay overwrites its own."""
        torch._foreach_copy_(list(self.inputs.values()), [inputs[name] for name in self.inputs])
        self.graph.replay()
        return {name: value.clone() for name, value in self.outputs.items()}


GRAPHED: weakref.WeakSet[Graphed] = weakref.WeakSet()
"""All there are."""


class Graphed:
    """A function of named tensors on a GPU, run as it is at first and as a graph from then on.

    It must do the same whatever the numbers are, never wait for the device, and draw from the given generators alone.
    """

    def __init__(
        self, function: Callable[[Tensors], Tensors], generators: Sequence[torch.Generator], urgency: int = 0
    ) -> None:
        """What is more urgent goes before other work that the GPU has at the same time."""
        self.function, self.generators, self.urgency = function, generators, urgency
        self.stream: torch.cuda.Stream | None = None
        self.calls: dict[object, int] = {}
        self.captures: dict[object, Capture] = {}
        self.failed = False
        GRAPHED.add(self)

    def __call__(self, inputs: Tensors) -> Tensors:
        """What the function gives."""
        form = tuple((name, value.shape, value.dtype) for name, value in inputs.items())
        capture = self.captures.get(form)
        if capture is not None:
            return capture(inputs)
        count = self.calls[form] = self.calls.get(form, 0) + 1
        if count <= WARMUP or self.failed or len(self.captures) >= MOST:
            return self._warm(inputs)
        try:
            capture = Capture(self.function, inputs, self._side, self.generators)
        except RuntimeError as error:
            self.failed = True
            for other in GRAPHED:  # graphs draw from the state that a generator had when they were captured
                if not set(other.generators).isdisjoint(self.generators):
                    other.captures.clear()
            LOG.warning("%s runs without a GPU graph, which is slower: %s", name_of(self.function), first_line(error))
            return self._warm(inputs)
        self.captures[form] = capture
        return capture(inputs)

    def forget(self) -> None:
        """Run as it is again and be captured anew: the function, or one that it calls, is another now."""
        if self.captures:
            torch.cuda.synchronize()  # a graph that still runs needs its memory
        self.calls.clear()
        self.captures.clear()
        self.failed = False

    @property
    def _side(self) -> torch.cuda.Stream:
        if self.stream is None:
            self.stream = torch.cuda.Stream(priority=-self.urgency)
        return self.stream

    def _warm(self, inputs: Tensors) -> Tensors:
        """A call on the stream that captures, whose memory and libraries are then ready."""
        current = torch.cuda.current_stream()
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            outputs = self.function(inputs)
        current.wait_stream(self._side)
        return outputs


def renew(generator: torch.Generator, state: Tensor) -> None:
    """Let a generator draw again, from a state on, after a capture that failed: it would wait for its end forever."""
    other = torch.Generator(generator.device)
    other.set_state(state)
    generator.graphsafe_set_state(other.graphsafe_get_state())


def name_of(function: Callable[[Tensors], Tensors]) -> str:
    """What a function is called, for people."""
    return getattr(getattr(function, "func", function), "__name__", "a function").strip("_")
