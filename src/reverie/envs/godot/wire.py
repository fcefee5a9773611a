"""Messages of the godot-rl protocol over TCP: each is a little-endian u32 length and that many bytes of JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

LENGTH = struct.Struct("<I")

Message = dict[str, Any]


class Wire:
    """Our end of a connection. Silence for too long is a TimeoutError, an end of the other side a ConnectionError."""

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else steps wait for acknowledgements
        connection.settimeout(timeout)
        self.connection = connection

    def send(self, message: Message) -> None:
        """Send a message."""
        text = json.dumps(message).encode()
        self.connection.sendall(LENGTH.pack(len(text)) + text)

    def receive(self, kind: str) -> Message:
        """The next message, which must be of that kind."""
        (length,) = LENGTH.unpack(self._bytes(LENGTH.size))
        message = json.loads(self._bytes(length))
        if message.get("type") != kind:
            raise ConnectionError(f"the game sent {message.get('type')!r} where {kind!r} was due")
        return message

    def close(self) -> None:
        """Hang up."""
        self.connection.close()

    def _bytes(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            part = self.connection.recv(count - len(found))
            if not part:
                raise ConnectionError("the game hung up")
            found += part
        return bytes(found)
