"""A replay in use, for the tests of what is saved of it."""

import pytest
import torch

from reverie.data.disk import Archive
from reverie.data.replay import Replay

CPU = torch.device("cpu")
MIXED = {"uniform": 0.4, "online": 0.3, "prioritised": 0.3}


class Life:
    """A run in miniature: it adds rows, learns from windows and writes latents back, all of it from its own state."""

    def __init__(self, folder, storage="ram", envs=2, capacity=60, selectors=None, device=CPU, **archive):
        options = {"selectors": selectors or MIXED, "folder": folder / "mapped", "seed": 4}
        self.replay = Replay(envs, capacity, storage=storage, device=device, **options)
        self.archive = Archive(folder / "saved", **archive)
        self.salt = 0

    def live(self, steps):
        """Everything that the run samples on the way."""
        seen = []
        for _ in range(steps):
            t, envs = self.replay.total, self.replay.envs
            self.replay.add(rows(t, t + 1, envs, self.salt))
            if self.replay.ready(3, 5):
                sample = self.replay.sample(3, 5)
                latents = sample["deter"] + sample["step"][..., None] % 13
                priority = (sample["step"] % 7).float()
                self.replay.update(sample["index"], {"deter": latents, "priority": priority})
                seen.append(sample)
        return {name: torch.stack([sample[name] for sample in seen]) for name in seen[0]} if seen else {}

    def see(self, start, stop):
        """Add these rows, whatever was before them."""
        self.replay.add(rows(start, stop, self.replay.envs))

    def save(self):
        """The state that a checkpoint would keep, as it comes out of a file."""
        self.archive.save(self.replay)
        torch.save(self.replay.state(), self.archive.folder.parent / "state.pt")

    def resume(self):
        state = torch.load(self.archive.folder.parent / "state.pt", weights_only=True)
        return self.archive.load(self.replay, state)


def rows(start, stop, envs, salt=0):
    time = torch.arange(start, stop)[:, None].expand(-1, envs)
    step = time + torch.arange(envs) * 1_000_000
    return {
        "step": step,
        "image": ((step[..., None, None] + salt) % 251).expand(-1, -1, 4, 4).byte(),
        "is_first": time % 10 == 0,
        "is_last": time % 10 == 9,
        "deter": torch.zeros(stop - start, envs, 3, dtype=torch.bfloat16),
    }


@pytest.fixture
def born():
    """What makes such a run in a folder."""
    return Life


@pytest.fixture
def given():
    """Rows of so many environments, from one time to another."""
    return rows
