"""A process that compiles: `python -m reverie.training.compiling PARENT`, started by `compilers`.

It reads an order from its input, makes such an agent, and lets it learn from blank rows with one compiled function
after the other, so that torch's cache on disk has them. Its output is a line for each.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator

import torch

from ..agents import compiled
from ..agents.dreamer import Dreamer
from ..config.errors import first_line
from ..data.rows import Batch
from ..data.storage import Layout
from .compilers import Order, taken

COMPILER = ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.async_compile")
"""What takes seconds to load, while the order is still to come."""
LOOK = 0.5
"""Seconds between two looks whether the learner is still there."""
MOST = 1.5
"""How many times the memory that was reckoned with it may take."""
NICENESS = 5
"""How much it yields to the learner."""


def main(parent: int) -> None:
    """Carry out the order and tell of it; end with the learner, whatever it ends by."""
    threading.Thread(target=follow, args=(parent,), daemon=True).start()
    os.nice(NICENESS)
    with os.fdopen(os.dup(1), "w", buffering=1) as told:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)  # compilers print what they like
        try:
            for module in COMPILER:
                importlib.import_module(module)
            order: Order = pickle.load(sys.stdin.buffer)  # which needs no end of the pipe: others may hold it open
            for name in carried_out(order):
                told.write(f"ready {name}\n")
        except Exception as error:  # of any kind: the learner goes on without, and says why
            told.write(f"failed {first_line(error)}\n")


def follow(parent: int) -> None:
    """End this process and all that it has started when the learner is gone."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os.killpg(0, signal.SIGKILL)


def carried_out(order: Order) -> Iterator[str]:
    """The names in an order, as soon as each is compiled."""
    if order.precision != torch.get_float32_matmul_precision():  # to set what is set already would be a change
        torch.set_float32_matmul_precision(order.precision)
    torch.set_num_threads(order.threads)
    compiled.BACKEND = order.backend
    agent = order.make()
    assert isinstance(agent, Dreamer)
    agent.changeover = None  # it compiles what it is told to
    if agent.device.type == "cuda":  # rather than the learner, this process is to run out of memory
        most = MOST * taken(agent) / torch.cuda.mem_get_info(agent.device)[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, most), agent.device.index)
    rows = blank(agent, order.layout)
    for name in order.names:
        agent.take([name])
        agent.learn_replay(rows)
        if agent.device.type == "cuda":
            torch.cuda.synchronize(agent.device)
        yield name


def blank(agent: Dreamer, layout: Layout) -> Batch:
    """Rows as a replay gives them, with nothing in them."""
    settings, device = agent.replay, agent.device
    lead = (settings.batch, settings.length + int(settings.start == "stored"))
    rows = {name: torch.zeros(*lead, *shape, dtype=kind, device=device) for name, (shape, kind) in layout.items()}
    if settings.start == "carried":
        rows["continues"] = torch.zeros(settings.batch, dtype=torch.bool, device=device)
    return rows


if __name__ == "__main__":
    main(int(sys.argv[1]))
