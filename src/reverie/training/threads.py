"""How torch and Python use the CPU and its memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from gymnasium import spaces

from ..config.schema import Config
from ..envs.form import is_image
from ..envs.process import core_count

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's `mallopt`."""
BORN = 2_000
"""More objects than Python sets apart by itself when it starts: some hundreds in 3.12, none before."""


@contextmanager
def lent() -> Iterator[None]:
    """Give torch's settings back as they were: the rest of the program may compute in its own way."""
    threads, benchmark = torch.get_num_threads(), torch.backends.cudnn.benchmark
    word, products = _precision(), (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    precisions = [product.fp32_precision for product in products]
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark = benchmark
        if word is not None:
            torch.set_float32_matmul_precision(word)
        for product, precision in zip(products, precisions):  # which the word sets, also where it says nothing new
            product.fp32_precision = precision


def _precision() -> str | None:
    """Torch's word for how exact products are; None where the program has said so in a way that has no such word."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def tune_cpu(config: Config, observation: spaces.Dict) -> None:
    """One CPU thread for networks of vectors alone, which several threads only slow down; else one per core."""
    images = any(is_image(space) for space in observation.values())
    torch.set_num_threads(config.run.threads or (core_count() if images else 1))
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next update instead of giving it back to the system.

    Temporaries of convolutions and of dreams are megabytes large; getting their pages anew costs about a sixth of an
    update's time.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


@contextmanager
def settled() -> Iterator[None]:
    """Let Python look for garbage among what comes from now on alone.

    What torch and a run consist of is hundreds of thousands of objects that stay; looking through them again and again
    costs a twentieth of a small update. Where someone else has set objects apart already nothing changes.
    """
    if gc.get_freeze_count() > BORN:
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
