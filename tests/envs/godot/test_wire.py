"""Messages to a game: framing, and what a game that stops speaking is taken for."""

import socket

import pytest

from reverie.envs.godot.wire import Wire


@pytest.fixture
def pair():
    """Our end of a connection and the game's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as game:
        wire = Wire(listener.accept()[0], 60.0)
        yield wire, game
        wire.close()


def test_a_message_is_its_length_and_json(pair):
    wire, game = pair
    wire.send({"type": "reset", "name": "ä"})
    sent = game.recv(100)
    assert sent == len(sent[4:]).to_bytes(4, "little") + b'{"type": "reset", "name": "\\u00e4"}'


def test_messages_may_come_in_pieces_and_together(pair):
    wire, game = pair
    text = '{"type": "step", "obs": "ä"}'.encode()
    whole = len(text).to_bytes(4, "little") + text
    game.sendall(whole + whole[:7])
    assert wire.receive("step") == {"type": "step", "obs": "ä"}
    game.sendall(whole[7:])
    assert wire.receive("step")["obs"] == "ä"


def test_silence_an_end_and_another_kind_are_errors(pair):
    wire, game = pair
    with pytest.raises(TimeoutError):
        Wire(wire.connection, 0.3).receive("step")
    wire = Wire(wire.connection, 60.0)
    game.sendall(b'\x10\x00\x00\x00{"type":"reset"}')
    with pytest.raises(ConnectionError, match="sent 'reset' where 'step' was due"):
        wire.receive("step")
    game.sendall(b"\x10\x00")
    game.close()
    with pytest.raises(ConnectionError, match="hung up"):
        wire.receive("step")
