"""What a file with one whole episode holds, and what its name says.

A file is an `.npz` with one array (T, ...) for each column of rows.py: rows from `is_first` to `is_last`, no pickles. A
column of a dtype that numpy lacks is kept as its bits in an array with one field, which is called like the dtype.
docs/operations.md describes the form for people. Nothing here needs torch.
"""

from __future__ import annotations

import io
import re
import struct
import uuid
import zipfile
import zlib
from datetime import UTC, datetime, timedelta
from typing import IO, NamedTuple

import numpy as np

from .rows import FLAGS, Rows

NEEDED = ("reward", *FLAGS, "action")
BITS = {"bfloat16": np.dtype(np.int16), "float8_e4m3fn": np.dtype(np.uint8), "float8_e5m2": np.dtype(np.uint8)}
"""What a dtype that numpy does not know is kept as."""
FORM = re.compile(r"(\d{8}T\d{12})_([0-9a-f]{12})_(\d+)_([^_/]+)\.npz")
TIME = "%Y%m%dT%H%M%S%f"
UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    MemoryError,
    OverflowError,
    RuntimeError,  # NotImplementedError of a compression that does not exist is one
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Everything that reading a damaged file has been seen to raise."""


class Title(NamedTuple):
    """What the name of an episode says: when it was written (UTC), what sets it apart, its steps and its return."""

    time: str
    unique: str
    steps: int
    score: float

    def __str__(self) -> str:
        score = f"{self.score:.9g}".replace("+", "")
        return f"{self.time}_{self.unique}_{self.steps}_{score}.npz"

    @property
    def age(self) -> float:
        """Seconds since it was written, by this machine's clock."""
        return (datetime.now(UTC) - datetime.strptime(self.time, TIME).replace(tzinfo=UTC)).total_seconds()

    @classmethod
    def parse(cls, name: str) -> Title | None:
        """What a name says; None where it is none of ours."""
        found = FORM.fullmatch(name)
        if found is None:
            return None
        try:
            datetime.strptime(found[1], TIME)
            return cls(found[1], found[2], int(found[3]), float(found[4]))
        except ValueError:
            return None


class Titles:
    """Titles for new episodes, each later than the one before even if the clock is put back."""

    def __init__(self) -> None:
        self.latest = datetime.min.replace(tzinfo=UTC)

    def __call__(self, episode: Rows) -> Title:
        """The title of an episode that is written now."""
        self.latest = max(datetime.now(UTC), self.latest + timedelta(microseconds=1))
        reward = episode["reward"]
        stamp = self.latest.strftime(TIME)
        return Title(stamp, uuid.uuid4().hex[:12], len(reward) - 1, float(reward.sum(dtype=np.float64)))


def fault(episode: Rows) -> str:
    """Why this is no whole episode; empty if it is one."""
    if missing := [name for name in NEEDED if name not in episode]:
        return f"it has no {', '.join(missing)}"
    for name, value in episode.items():
        if not ((value.dtype.kind in "biuf" and value.dtype.isnative) or foreign(value.dtype)):
            return f"{name} is of dtype {value.dtype}"
    lengths = {value.shape[:1] for value in episode.values()}
    if len(lengths) > 1 or lengths == {()}:
        return "its columns differ in length"
    if episode["reward"].ndim != 1 or any(episode[name].dtype != np.bool_ or episode[name].ndim != 1 for name in FLAGS):
        return "its rewards or flags are no numbers and bools by row"
    rows = len(episode["reward"])
    ends = [np.flatnonzero(episode[name]).tolist() for name in ("is_first", "is_last")]
    if rows < 2 or ends != [[0], [rows - 1]]:
        return "it does not go from a first row to a last one"
    return ""


def foreign(dtype: np.dtype) -> str:
    """The dtype, unknown to numpy, whose bits a column of this dtype keeps; empty for all others."""
    word = dtype.names[0] if dtype.names is not None and len(dtype.names) == 1 else ""
    return word if word in BITS and dtype == note(word) else ""


def note(word: str) -> np.dtype:
    """The dtype that bits of `word` are kept in."""
    return np.dtype([(word, BITS[word])])


def encode(file: IO[bytes], episode: Rows, compress: bool) -> None:
    """Write an episode; by hand, as `np.savez` has no room for a column called `file`."""
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind, compresslevel=1) as archive:
        archive.comment = _count(episode)
        for name, value in episode.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)


def _count(episode: Rows) -> bytes:
    """What the list of columns in a file, which has no checksum, is checked by."""
    return f"{len(episode)} columns".encode()


def decode(file: IO[bytes], title: Title) -> Rows:
    """The episode in a file; one of the errors in UNREADABLE where there is none.

    Members are read whole before they become arrays, unlike by `np.load`: only then are their checksums compared.
    """
    episode: Rows = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            if not member.endswith(".npy"):
                raise ValueError(f"it holds {member}, which is no array")
            data = io.BytesIO(archive.read(member))
            episode[member.removesuffix(".npy")] = np.lib.format.read_array(data, allow_pickle=False)
        if archive.comment not in (b"", _count(episode)):  # files that others made need not have one
            raise ValueError("its list of columns is not whole")
    if why := fault(episode):
        raise ValueError(why)
    if len(episode["reward"]) != title.steps + 1:
        raise ValueError(f"it has {len(episode['reward']) - 1} steps, its name says {title.steps}")
    return episode
