"""Updates that came to nothing for numbers that are not finite: written down, and the end of a run where they go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from ..config.errors import UserError
from ..data.rows import Batch
from ..log.disk import writing

LOG = logging.getLogger("reverie")

PATIENCE = 10
"""How often in a row learning may fail for such numbers before the run stops."""


class Skips:
    """Looks at what failed: `kind` names what is counted in a row, `advice` says what helps."""

    def __init__(self, folder: Path, kind: str, advice: str, dumps: int) -> None:
        self.folder, self.kind, self.advice, self.dumps = folder, kind, advice, dumps

    def look(self, failed: int, rows: Callable[[], Batch], updates: int) -> None:
        """Write down the rows of the first failures, and stop when it has failed again and again."""
        if not failed:
            return
        if self.dumps:
            self.dumps -= 1
            path = self.folder / f"nonfinite-{updates}.npz"
            with writing(path):
                np.savez(path, **{key: _plain(value) for key, value in rows().items()})  # type: ignore[arg-type]
            LOG.warning("an update was skipped: its loss or gradient is not finite; its batch is in %s", path)
        if failed >= PATIENCE:
            raise UserError(
                f"{failed} {self.kind} in a row had a loss or gradient that is not finite: look at the batches in "
                f"{self.folder}/nonfinite-*.npz, {self.advice}"
            )


def _plain(value: torch.Tensor) -> np.ndarray:
    """The tensor as an array; bfloat16, which numpy lacks, as float32."""
    return (value.float() if value.dtype == torch.bfloat16 else value).cpu().numpy()
