"""Processes by their numbers."""

from pathlib import Path


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended does not, though nobody may have asked how."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before the file was opened, or before it was read
        return False
