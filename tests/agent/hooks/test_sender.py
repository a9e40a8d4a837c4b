"""Posts of an agent to receivers of every kind, on the loopback address."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.agent.hooks.sender import send
from dtctl.agent.records.hooks import Sent
from tests.receiver import HANGS_S, Server, receiver

SECRET = "T0ps3cretT0ken"


@pytest.fixture
def server() -> Iterator[Server]:
    with receiver() as made:
        yield made


def post(server: Server, path: str, timeout_s: float = 60.0, **headers: str) -> Sent:
    return send(server.url(path), headers, {"text": "it has failed", "id": "r/1"}, timeout_s)


def test_a_post_is_json_with_the_headers_that_were_asked_for(server: Server) -> None:
    assert post(server, "ok", Authorization=f"Bearer {SECRET}")["problem"] is None
    assert server.bodies == [{"text": "it has failed", "id": "r/1"}]
    assert server.headers[0]["content-type"] == "application/json; charset=utf-8"
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(("word", "again"), [("gone", False), ("busy", True), ("later", True)])
def test_what_is_not_taken_is_told_with_the_answer_and_without_the_secret(
    server: Server, word: str, again: bool
) -> None:
    sent = post(server, f"{word}/{SECRET}?token={SECRET}")
    assert (sent["problem"], sent["again"]) == ("answer", again)
    assert "no_service" in sent["text"]
    assert SECRET not in sent["text"]


def test_a_redirection_is_not_followed(server: Server) -> None:
    sent = post(server, "redirect")
    assert (sent["problem"], sent["again"]) == ("redirect", False)
    assert len(server.bodies) == 1


def test_what_is_no_answer_of_http_is_a_failure_like_others(server: Server) -> None:
    assert post(server, "babble")["problem"] == "unreachable"


def test_one_that_hangs_is_given_up_in_time(server: Server) -> None:
    began = time.monotonic()
    sent = post(server, "hang", timeout_s=0.3)
    assert (sent["problem"], sent["text"], sent["again"]) == ("unreachable", "timed out", True)
    assert time.monotonic() - began < HANGS_S


def test_a_host_that_is_not_there_is_told_by_its_reason() -> None:
    sent = send("http://127.0.0.1:1/", {}, {}, 5.0)
    assert (sent["problem"], sent["text"]) == ("unreachable", "Connection refused")


def test_an_unknown_certificate_is_refused(tmp_path: Path) -> None:
    import ssl

    from dtctl.operations.up.launch import Authority

    issued = Authority("r").issue("a", coordinates=True)
    (tmp_path / "both.pem").write_text(issued.key + issued.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    made = Server()
    made.socket = context.wrap_socket(made.socket, server_side=True)
    with receiver(made):
        sent = send(made.url("ok").replace("http:", "https:"), {}, {}, 5.0)
    assert (sent["problem"], sent["again"]) == ("unreachable", False)
    assert "certificate" in sent["text"]
    assert made.bodies == []
