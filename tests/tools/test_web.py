"""The server of the page: who gets in, and what it answers."""

import json
import socket
import time
from concurrent.futures import Future
from http.client import HTTPConnection

import pytest

from reverie.cli import run
from reverie.config.errors import UserError
from reverie.tools.web import Stage, hosts
from waiting import until


@pytest.fixture(scope="module")
def folder(dreaming):
    return dreaming("toy_catch")


@pytest.fixture(scope="module")
def page(folder, opened):
    return opened(folder, "--context", "2")


def ask(page, path: str, body: bytes | str | None = None, method: str = "POST", **headers: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    connection = HTTPConnection("127.0.0.1", page.port, timeout=30)
    try:
        given = {"X-Token": page.token} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {name: value for name, value in given.items() if value})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def moments(page, path: str, **question) -> list[dict]:
    status, text = ask(page, path, json.dumps(question))
    assert status == 200, text
    return json.loads(text)["moments"]


def test_the_page_needs_the_token_and_nothing_from_elsewhere(page):
    status, text = ask(page, f"/?token={page.token}", method="GET", X_Token="")
    assert status == 200 and "<canvas" not in text and "reverie dream" in text
    assert "http://" not in text and "https://" not in text and "NONCE" not in text


@pytest.mark.parametrize("query", ["", "?token=", "?token=wrong", "?token=%C3%A9", "?other=1"])
def test_without_the_token_there_is_no_page(page, query):
    status, text = ask(page, f"/{query}", method="GET", X_Token="")
    assert status == 403 and "<html" not in text


def test_without_the_token_there_are_no_answers(page):
    for token in ("", "wrong", page.token[:-1], page.token + "x"):
        assert ask(page, "/about", "{}", X_Token=token)[0] == 403
        assert ask(page, f"/step?token={page.token}", "{}", X_Token=token)[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:{port}"])
def test_other_names_of_this_machine_are_refused(page, host):
    named = host.format(port=page.port)
    assert ask(page, "/about", "{}", Host=named)[0] == 403
    assert ask(page, f"/?token={page.token}", method="GET", Host=named)[0] == 403
    assert ask(page, "/about", "{}", Host=f"localhost:{page.port}")[0] == 200


def test_it_listens_on_this_machine_alone(page):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", page.port), timeout=5)


@pytest.mark.parametrize("path", ["/etc/passwd", "/../../etc/passwd", "/page.html", "/config.yaml", "/x"])
def test_no_files_are_served(page, path):
    assert ask(page, f"{path}?token={page.token}", method="GET")[0] == 404
    assert ask(page, path, "{}")[0] == 404


@pytest.mark.parametrize(
    "body",
    ["", "no json", "[1]", "3", '{"values": [3]}', '{"values": [1, 1]}', '{"values": "import os"}',
     '{"values": [1e999]}', '{"values": [true]}', '{"values": [1%s]}' % ("0" * 400), "[" * 5000, "x" * 70_000],
)  # fmt: skip
def test_nonsense_is_refused_and_changes_nothing(page, body):
    assert ask(page, "/step", body)[0] == 400
    assert len(moments(page, "/begin", beside=True)) == 2


def test_a_question_without_a_length_is_refused(page):
    with socket.create_connection(("127.0.0.1", page.port), timeout=10) as line:
        line.sendall(f"POST /step HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nX-Token: {page.token}\r\n\r\n".encode())
        assert line.recv(100).startswith(b"HTTP/1.1 400")


def answered(page, request: str) -> bytes:
    """All that comes back for the words of a request, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", page.port), timeout=10) as line:
        line.sendall(f"{request}\r\nHost: LOCALHOST:{page.port}\r\n\r\n".encode("latin-1"))
        return b"".join(iter(lambda: line.recv(4096), b""))


def test_requests_that_are_none_are_refused_and_the_connection_is_closed(page):
    assert answered(page, "GET http://[/ HTTP/1.1").startswith(b"HTTP/1.1 400")
    for size in ("\u00b2", "9" * 5000, "-1"):
        asked = f"POST /step HTTP/1.1\r\nContent-Length: {size}"
        assert answered(page, asked).startswith(b"HTTP/1.1 403")
        assert answered(page, f"{asked}\r\nX-Token: {page.token}").startswith(b"HTTP/1.1 400")


def test_any_error_is_told_to_whoever_asked_and_the_next_question_is_answered():
    stage = Stage(None, [], {})
    stage.questions["/step"] = lambda _: 1 / 0
    futures = {path: Future() for path in ("/step", "/about")}
    for path, future in futures.items():
        stage.waiting.put((path, {}, future))
        stage.answer()
    assert isinstance(futures["/step"].exception(), ZeroDivisionError)
    assert futures["/about"].result() == {"controls": []}


def test_browsers_leave_out_the_usual_port():
    assert "localhost" in hosts(80) and "localhost:80" in hosts(80)
    assert "localhost" not in hosts(8000)


def test_about_tells_what_the_page_needs(page):
    about = json.loads(ask(page, "/about", "{}")[1])
    assert about["task"] == "toy_catch" and about["checkpoint"] == "latest.pt" and about["step"] >= 80
    assert [each["names"] for each in about["controls"]] == [["left", "noop", "right"]]


def test_steps_show_dream_and_truth(page):
    first, second = moments(page, "/begin", beside=True)
    assert first["seen"] and first["action"] is None and second["seen"] and second["truth"]
    (moment,) = moments(page, "/step", values=[2])
    assert not moment["seen"] and moment["action"] == [2] and not moment["over"]
    for side in ("dream", "truth"):
        image = moment[side]["images"]["image"]
        assert (image["height"], image["width"]) == (32, 32) and len(image["data"]) == 4096
        assert set(moment[side]["numbers"]) == {"reward", "value", "continue"}
    moments(page, "/begin", beside=False)
    (moment,) = moments(page, "/step", values=None)
    assert moment["truth"] is None and moment["action"][0] in (0, 1, 2)


def test_fifteen_steps_a_second_at_least(page):
    """At some time, since others may use this machine too."""
    moments(page, "/begin", beside=False)

    def rate() -> float:
        begin = time.perf_counter()
        for _ in range(10):
            moments(page, "/step", values=None)
        return 10 / (time.perf_counter() - begin)

    assert until(lambda: rate() > 15, 60)


def test_ctrl_c_ends_it_quietly_even_with_a_page_connected(folder, opened):
    page = opened(folder)
    connection = HTTPConnection("127.0.0.1", page.port, timeout=30)
    connection.request("POST", "/begin", "{}", {"X-Token": page.token})
    connection.getresponse().read()
    for rude in ("GET http://[/ HTTP/1.1", "POST /step HTTP/1.1\r\nContent-Length: \u00b2"):
        assert answered(page, rude).startswith(b"HTTP/1.1 4")
    status, out, err = page.interrupt()
    connection.close()
    assert status == 0 and "The dream has ended." in out and "Traceback" not in err
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", page.port), timeout=5)


def test_a_port_that_is_taken_is_told(folder, page):
    with pytest.raises(UserError, match=rf"--port {page.port}: Address already in use; give another, or 0"):
        run(["dream", "--web", "--logdir", str(folder), "--port", str(page.port)])
