"""Where studies lie: SQLite or any other database, a journal, Redis."""

from __future__ import annotations

import logging
import time
import warnings
from typing import Any
from urllib.parse import urlsplit

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalRedisBackend
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ..config.errors import UserError

TRIES = 5
"""How often a database is opened: of workers that start at once, one makes the tables, and others come too early."""


def open_storage(url: str) -> BaseStorage:
    """The storage at an address."""
    optuna.logging.set_verbosity(logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    try:
        if url.startswith("journal:"):
            return JournalStorage(JournalFileBackend(url.removeprefix("journal:").removeprefix("//")))
        if url.startswith("redis"):
            return JournalStorage(JournalRedisBackend(url))
        return _database(url)
    except (SQLAlchemyError, ImportError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"cannot open --storage {shown(url)}: {reason}") from error


def _database(url: str) -> RDBStorage:
    patience: dict[str, Any] = (
        {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    )
    for left in reversed(range(TRIES)):
        try:
            return RDBStorage(url, engine_kwargs=patience)
        except SQLAlchemyError as error:
            if not left or not (isinstance(error, IntegrityError) or "exist" in str(error)):
                raise
            time.sleep(0.3)
    raise AssertionError


def shown(url: str) -> str:
    """An address without its password."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":***@") if password else url
