"""A lucid dream as a page in the browser: on this machine alone, for whoever has the printed address.

The page asks for one step after another, so that pace and pause are its own business. Model and environment live in
the main thread, which answers one question at a time.
"""

from __future__ import annotations

import base64
import hmac
import json
import math
import secrets
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from queue import SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from ..config.errors import UserError
from .controls import Control, action_of
from .lucid import LucidDream, Moment, View

HOST = "127.0.0.1"
LIMIT = 65_536
"""Bytes of a question at most."""
IDLE = 600
"""Seconds after which a connection without questions is closed."""

Answer = dict[str, Any]


class Stage:
    """Answers what the page asks."""

    def __init__(self, dream: LucidDream, controls: Sequence[Control], facts: Answer) -> None:
        self.dream, self.controls = dream, controls
        self.facts = {**facts, "controls": [asdict(each) for each in controls]}
        self.waiting: SimpleQueue[tuple[str, Any, Future[Answer]]] = SimpleQueue()
        self.questions: dict[str, Callable[[Any], Answer]] = {
            "/about": lambda _: self.facts,
            "/begin": self._begin,
            "/step": self._step,
        }

    def _begin(self, asked: Any) -> Answer:
        return {"moments": [told(each) for each in self.dream.begin(bool(asked.get("beside")))]}

    def _step(self, asked: Any) -> Answer:
        values, space = asked.get("values"), self.dream.stream.action_space
        action = None if values is None else action_of(values, self.controls, space)
        return {"moments": [told(self.dream.step(action))]}

    def ask(self, path: str, question: Any) -> Answer:
        """The answer to a question, worked out in the main thread."""
        future: Future[Answer] = Future()
        self.waiting.put((path, question, future))
        return future.result()

    def answer(self) -> None:
        """Answer the next question, waiting for one if need be."""
        path, question, future = self.waiting.get()
        try:
            future.set_result(self.questions[path](question))
        except Exception as error:  # the page shows the reason, and the dream may begin anew
            future.set_exception(error)


def told(moment: Moment) -> Answer:
    """A moment as JSON takes it."""
    return {
        "seen": moment.seen,
        "over": moment.over,
        "action": None if moment.action is None else np.atleast_1d(moment.action).tolist(),
        "dream": view(moment.dream),
        "truth": None if moment.truth is None else view(moment.truth),
        "picture": None if moment.picture is None else pixels(moment.picture),
    }


def view(shown: View) -> Answer:
    """A view as JSON takes it; numbers that are not finite are null."""
    vectors = {key: [finite(x) for x in value.tolist()] for key, value in shown.vectors.items()}
    numbers = {name: finite(value) for name, value in shown.numbers.items()}
    return {"images": {key: pixels(x) for key, x in shown.images.items()}, "vectors": vectors, "numbers": numbers}


def finite(number: float) -> float | None:
    """The number, None if it is not finite."""
    return number if math.isfinite(number) else None


def pixels(image: np.ndarray) -> Answer:
    """An image (h, w, 3) as text."""
    data = base64.b64encode(np.ascontiguousarray(image).tobytes()).decode()
    return {"height": image.shape[0], "width": image.shape[1], "data": data}


class Server(ThreadingHTTPServer):
    """Listens on this machine alone."""

    daemon_threads = True

    def __init__(self, stage: Stage, port: int) -> None:
        self.stage, self.token = stage, secrets.token_urlsafe(18)
        self.page = files("reverie.tools").joinpath("page.html").read_text(encoding="utf-8")
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}; give another, or 0 for a free one") from error
        self.hosts = hosts(self.server_port)

    @property
    def address(self) -> str:
        """What to open."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a page that went away; anything else is a defect and is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def hosts(port: int) -> set[str]:
    """What browsers call this machine; they leave out the usual port."""
    names = (HOST, "localhost")
    return {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())


class Handler(BaseHTTPRequestHandler):
    """Gives the page and the answers to its questions, to those who know the token."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "reverie", ""
    timeout = IDLE
    wbufsize = -1  # headers and body in one packet: two would wait for each other
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """The page."""
        try:
            place = urlsplit(self.path)
        except ValueError:
            return self._refuse(HTTPStatus.BAD_REQUEST, "this is no address")
        if not self._allowed(parse_qs(place.query).get("token", [""])[0]):
            return self._refuse(HTTPStatus.FORBIDDEN, "open the address that reverie printed, token included")
        if place.path != "/":
            return self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        once = secrets.token_urlsafe(12)
        ours = f"script-src 'nonce-{once}'; style-src 'nonce-{once}'; connect-src 'self'; img-src data:"
        content = self.server.page.replace("NONCE", once).encode()
        return self._send(HTTPStatus.OK, "text/html; charset=utf-8", content, f"default-src 'none'; {ours}")

    def do_POST(self) -> None:
        """The answer to a question of the page."""
        if not self._allowed(self.headers.get("X-Token", "")):
            return self._refuse(HTTPStatus.FORBIDDEN, "the token is missing or wrong")
        if self.path not in self.server.stage.questions:
            return self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        size = self.headers.get("Content-Length", "")
        if not (size.isascii() and size.isdigit() and len(size) <= len(str(LIMIT)) and int(size) <= LIMIT):
            return self._refuse(HTTPStatus.BAD_REQUEST, "a question has a length, and a small one")
        try:
            question = json.loads(self.rfile.read(int(size)))
            if not isinstance(question, dict):
                raise UserError("a question is an object")
            answer = self.server.stage.ask(self.path, question)
        except (ValueError, RecursionError, UserError) as error:
            return self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:
            return self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        return self._send(HTTPStatus.OK, "application/json", json.dumps(answer).encode())

    def _allowed(self, token: str) -> bool:
        """Whether someone knows the token, and came by this machine's own name: other names may be a trap."""
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        return known and self.headers.get("Host", "").lower() in self.server.hosts

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True  # what else was sent may not be read
        self._send(status, "text/plain; charset=utf-8", f"{why}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes, policy: str = "default-src 'none'") -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "Connection": "close" if self.close_connection else "keep-alive",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is for people."""


def serve(stage: Stage, port: int, opened: Callable[[str], None]) -> None:
    """Answer the page until the process is interrupted; `opened` is told the address."""
    with Server(stage, port) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        opened(server.address)
        try:
            while True:
                stage.answer()
        except KeyboardInterrupt:
            server.shutdown()
