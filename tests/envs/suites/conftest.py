"""Fixtures of the suites' tests."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from reverie.envs.registry import Suite


@pytest.fixture(scope="session")
def installed() -> Callable[[Suite], Suite]:
    """A check to call with a suite: skips the test where its packages are missing, fails it in CI."""

    def check(suite: Suite) -> Suite:
        if missing := suite.missing():
            report = pytest.fail if os.environ.get("CI") else pytest.skip
            report(f"{suite.name} needs {', '.join(missing)}: {suite.install}")
        return suite

    return check
