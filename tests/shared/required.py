"""Packages that tests need."""

import importlib
import os
from types import ModuleType

import pytest


def package(name: str) -> ModuleType:
    """The package; where it is missing, what needs it is skipped for users and fails in CI."""
    return importlib.import_module(name) if os.environ.get("CI") else pytest.importorskip(name)
