"""A missing package skips a test for users and fails it in CI."""

import pytest

from required import package


def test_a_missing_package_skips_for_users_and_fails_in_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception):
        package("no_such_package")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(ModuleNotFoundError):
        package("no_such_package")
    assert package("pytest") is pytest
