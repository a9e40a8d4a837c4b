"""A browser, and a TensorBoard on a host that may lie: what reaches whom."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dtctl.operations.tensorboard.tunnel import proxy
from dtctl.operations.webserver import Door, Server, listen
from dtctl.render.dashboard import page
from tests.browser import Page
from tests.waiting import PATIENCE_S


class Upstream:
    """Answers each connection with the same bytes, and keeps what was asked."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[bytes] = []

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE_S)
        threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()
        return ours

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += connection.recv(65536)
            head, _, body = asked.partition(b"\r\n\r\n")
            length = next(
                (int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
            )
            while len(body) < length:
                body += connection.recv(65536)
            self.asked.append(head + b"\r\n\r\n" + body)
            connection.sendall(self.answer)


HONEST = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"
LYING = b"\r\n".join(
    [
        b"HTTP/1.1 200 OK",
        b"Set-Cookie: session=mine; Path=/",
        b"Location: http://127.0.0.1:8888/",
        b'Clear-Site-Data: "*"',
        b"Service-Worker-Allowed: /",
        b"Referrer-Policy: unsafe-url",
        b"Content-Type: text/html",
        b"",
        b"<script>steal()</script>",
    ]
)


@contextmanager
def served(upstream: Upstream) -> Iterator[tuple[Page, Server]]:
    entrance = page.entrance("dtctl tensorboard")
    with listen(0, apart=True) as here, Server(here, Door(), entrance, proxy(upstream.connect)) as server:
        yield Page(server.address), server


def test_pages_are_shown_to_who_was_let_in_and_to_nobody_else() -> None:
    upstream = Upstream(HONEST)
    with served(upstream) as (browser, server):
        assert browser.below("data/runs?x=1") == "hello"
        assert upstream.asked[0].startswith(b"GET /data/runs?x=1 HTTP/1.1\r\nHost: tensorboard\r\n")
        other = Page(server.address)
        other.cookie = ""
        assert other.get(browser.place)[0] == 403
        assert other.get("/data/runs")[0] == 404
        with browser.asked(browser.place, headers={"Host": "rebound.example"}) as answer:
            assert answer.status == 400
    assert len(upstream.asked) == 1


def test_a_host_gets_no_cookie_and_sets_none() -> None:
    upstream = Upstream(LYING)
    with served(upstream) as (browser, _):
        browser.cookie += "; session=of-another-service"
        secrets = {
            "Authorization": "Bearer secret",
            "Referer": "http://127.0.0.1:8888/?token=secret",
            "X-Secret": "secret",
        }
        with browser.asked(browser.place, headers=secrets) as answer:
            told = {name.lower(): value for name, value in answer.getheaders()}
            assert b"steal" in answer.read()
        assert not {"set-cookie", "location", "clear-site-data", "service-worker-allowed"} & told.keys()
        assert told["referrer-policy"] == "no-referrer"
    (asked,) = upstream.asked
    assert b"cookie" not in asked.lower()
    assert b"secret" not in asked
    assert b"of-another-service" not in asked


def test_what_is_posted_arrives_unless_a_page_of_elsewhere_sends_it() -> None:
    upstream = Upstream(HONEST)
    with served(upstream) as (browser, _):
        body = bytes(300_000)
        with browser.asked(browser.place + "data/x", "POST", body, {"Content-Type": "application/json"}) as answer:
            assert (answer.status, answer.read()) == (200, b"hello")
        assert upstream.asked[0].endswith(body)
        with browser.asked(browser.place + "data/x", "POST", body, {"Origin": "http://127.0.0.1:1"}) as answer:
            assert answer.status == 403
        with browser.asked(browser.place, "DELETE") as answer:
            assert answer.status == 405
        with browser.asked(browser.place, "HEAD") as answer:
            assert (answer.status, answer.read()) == (200, b"")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("Content-Length", "9" * 5000, 411), ("Content-Length", "+1", 411), ("Origin", "http://[", 403)],
)
def test_a_header_that_is_none_is_refused_and_shows_no_traceback(
    name: str, value: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    upstream = Upstream(HONEST)
    with served(upstream) as (browser, _), browser.asked(browser.place, headers={name: value}) as answer:
        assert answer.status == code
    assert upstream.asked == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "answer", [b"", b"\0" * 100, b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"x" * 100_000]
)
def test_what_is_no_answer_is_an_error_of_the_page_alone(answer: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    upstream = Upstream(answer)
    with served(upstream) as (browser, _):
        assert browser.get(browser.place)[0] == 502
        upstream.answer = HONEST
        assert browser.below() == "hello"
    assert capfd.readouterr().err == ""
