"""What tests of agents share."""

from collections.abc import Callable

import pytest
import torch


@pytest.fixture
def assert_updates_alike() -> Callable[..., None]:
    """A check that two agents, one of them in a faster form, make two updates on rows with the same outcome."""

    def check(plain, fast, rows):
        for _ in range(2):
            expected, found = plain.learn_replay(rows), fast.learn_replay(rows)
        assert expected.metrics.keys() == found.metrics.keys()
        for name, value in expected.metrics.items():
            torch.testing.assert_close(found.metrics[name], value, rtol=1e-3, atol=1e-5, msg=name)
        for name, value in expected.writeback.items():
            torch.testing.assert_close(found.writeback[name], value, rtol=1e-2, atol=1e-2, msg=name)
        for (name, value), other in zip(plain.state_dict().items(), fast.state_dict().values()):
            torch.testing.assert_close(other, value, rtol=1e-3, atol=1e-4, msg=name)

    return check
