"""Stores of episodes as a configuration asks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..config.errors import UserError
from ..config.schema import Config
from ..data.braid import Braid
from ..data.episode_reader import EpisodeReader
from ..data.episodes import EpisodeStore, FolderStore
from ..data.storage import Layout
from ..log.episodes_mlflow import MlflowStore
from ..log.sinks.mlflow import RUN_FILE
from ..nn import ranks
from .feed import Feed

LOT = 10_000
"""Steps that are read at a time."""
MLFLOW = "mlflow:"


def check_stores(config: Config) -> None:
    """Refuse settings of stores that contradict each other."""
    settings = config.store
    if settings.write == "mlflow" and not config.log.mlflow:
        raise UserError("--store.write mlflow needs a run of MLflow to write to: add --log.mlflow")
    if settings.read.startswith(MLFLOW) and not config.log.mlflow_uri:
        raise UserError(f"--store.read {settings.read} needs the address of the server: add --log.mlflow_uri")
    if settings.read and not settings.read.startswith(MLFLOW) and not Path(settings.read).is_dir():
        raise UserError(f"--store.read {settings.read}: there is no such folder")
    if not settings.live and not settings.read:
        raise UserError("--store.live False leaves nothing to learn from: add --store.read FOLDER")
    if settings.read and config.agent.name != "dreamer":
        raise UserError(
            f"--store.read is for a world model, which {config.agent.name} has not: add --configs dreamer_v3"
        )
    if not settings.live and config.agent.policy == "on_policy_ppo":
        raise UserError(
            "--store.live False leaves on_policy_ppo without rows of its own policy: take another --agent.policy"
        )


def written_store(config: Config, folder: Path) -> Callable[[], EpisodeStore]:
    """Makes the store that a run writes to; its MLflow run must exist, or that of the first that learns along."""
    settings = config.store
    if settings.write == "mlflow":
        first = folder.parent if ranks.number() else folder
        uri = config.log.mlflow_uri or (first.absolute() / "mlruns").as_uri()
        return partial(MlflowStore, uri, (first / RUN_FILE).read_text().strip(), settings.compress)
    place = Path(settings.folder or folder / "episodes").absolute()
    return partial(FolderStore, place, settings.keep, settings.compress)


def make_feed(config: Config, layout: Layout) -> Feed | None:
    """The episodes that a run learns from besides its own rows; None where there are none."""
    settings = config.store
    if not settings.read:
        return None
    store: EpisodeStore
    if settings.read.startswith(MLFLOW):
        store = MlflowStore(config.log.mlflow_uri, settings.read.removeprefix(MLFLOW))
    else:
        store = FolderStore(settings.read)
    newest = settings.order == "newest"
    reader = EpisodeReader(store, settings.order, settings.newest if newest else LOT)
    return Feed(settings.read, reader, Braid(layout, config.envs.count), settings.every, settings.live)
