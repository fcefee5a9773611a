"""What all tests share."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """One torch thread per test process: several processes run at once, and small networks gain nothing from more."""
    torch.set_num_threads(1)
