"""Ports for servers that cannot choose one themselves."""

import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that nobody uses, nor gets by chance until it is used: it is none of those that the system gives out."""
    first = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32768
    if first <= 2048:  # it gives out all there are
        first = 32768
    for _ in range(1000):
        port = random.SystemRandom().randrange(max(1024, first - 10_000), first)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"no port is free below {first}")
