"""Work that a GPU does beside other work."""

from __future__ import annotations

import torch


class Beside:
    """Work that needs only what there was at `fork`, and is not needed before `join`: on a second stream of a GPU.

    What such work takes must be kept until then, since memory that is freed is used again at once. Without a GPU it is
    done where it stands.
    """

    def __init__(self, device: torch.device | None = None, urgency: int = 0) -> None:
        """What is more urgent goes before other work that the GPU has at the same time."""
        on_gpu = device is not None and device.type == "cuda"
        self.stream = torch.cuda.Stream(device, priority=-urgency) if on_gpu else None
        self.entered: list[torch.cuda.StreamContext] = []

    def fork(self) -> None:
        """Say that all the work needs is there, or on its way."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())

    def __enter__(self) -> None:
        if self.stream is not None:
            self.entered.append(torch.cuda.stream(self.stream))
            self.entered[-1].__enter__()

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.entered.pop().__exit__(*error)

    def join(self) -> None:
        """Let what follows wait for the work."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
