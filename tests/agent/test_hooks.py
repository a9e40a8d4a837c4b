"""Posts to receivers of every kind on the loopback address, by a process that the agent never waits for."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.agent.hooks.posting import Delivery
from dtctl.agent.hooks.sender import send
from dtctl.agent.host import programs
from dtctl.agent.records.hooks import MOST_BYTES, Post, Sent
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import fact
from dtctl.agent.run.run_events import ended, payload
from dtctl.transport.payload import agent_program
from tests.agent.host import compiled_program
from tests.receiver import HANGS_S, Server, receiver
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _program_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled_program(sys.executable) / agent_program().sha256
    monkeypatch.setattr(programs, "directory", lambda: str(program))


def delivery(url: str, timeout_s: float = 60.0, **inherited: str) -> Delivery:
    post = made(Post, name="slack", on=["failed"], url=url, timeout_s=timeout_s)
    return Delivery(post, {"text": "t", "id": "r/1"}, inherited, time.monotonic())


def answer(at_work: Delivery) -> Sent:
    answers: list[Sent] = []

    def look() -> bool:
        sent = at_work.update(time.monotonic())
        answers.extend([sent] if sent is not None else [])
        return sent is not None

    eventually(look, what="an answer")
    return answers[0]


def test_a_post_is_made_by_a_process_of_its_own() -> None:
    with receiver() as server:
        at_work = delivery(server.url("ok"))
        began = time.monotonic()
        assert at_work.update(began) is None  # at once
        assert answer(at_work)["problem"] is None
        assert server.bodies == [{"text": "t", "id": "r/1"}]


def test_post_process_that_hangs_is_ended_at_its_deadline() -> None:
    with receiver() as server:
        at_work = delivery(server.url("hang"))
        eventually(lambda: bool(server.bodies), what="the post")
        sent = at_work.update(at_work.deadline)  # as the clock of the agent says
        assert sent is not None
        assert sent["text"] == "no answer within 60 s"
        assert at_work._process.returncode is not None


def test_a_proxy_of_the_host_is_used() -> None:
    with receiver() as server:
        at_work = delivery("http://nosuch.invalid/ok", http_proxy=server.url(""), PATH="/usr/bin:/bin")
        assert answer(at_work)["problem"] is None
        assert server.bodies


def test_command_line_contains_no_secret_of_the_post() -> None:
    with receiver() as server:
        at_work = delivery(server.url("T0ps3cret"))
        assert "T0ps3cret" not in " ".join(map(str, at_work._process.args))  # type: ignore[arg-type]
        at_work.end()


def test_longest_post_fits_into_an_unread_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/sleep")  # which fails at once, having read nothing
    bad = "\N{SNOWMAN}"
    why = [fact("task_failed", task="worker:0"), *[fact("cause", text=bad * 4096)] * 8]
    body = payload(ended("r", "Failed", why, "worker:0", 1.0), "demo", "")
    headers = dict.fromkeys("ABC", "x" * (MOST_BYTES // 3 - 100))
    post = made(Post, name="slack", on=["failed"], url="http://x/", headers=headers, timeout_s=5.0)
    at_work = Delivery(post, body, {}, time.monotonic())
    assert answer(at_work)["text"] == "its sender has failed"


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
def test_what_is_not_taken_is_reported_with_the_answer_and_without_the_secret(
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


def test_invalid_http_response_is_a_failure(server: Server) -> None:
    assert post(server, "babble")["problem"] == "unreachable"


def test_post_without_an_answer_times_out(server: Server) -> None:
    began = time.monotonic()
    sent = post(server, "hang", timeout_s=0.3)
    assert (sent["problem"], sent["text"], sent["again"]) == ("unreachable", "timed out", True)
    assert time.monotonic() - began < HANGS_S


def test_a_host_that_is_not_there_is_reported_by_its_reason() -> None:
    sent = send("http://127.0.0.1:1/", {}, {}, 5.0)
    assert (sent["problem"], sent["text"]) == ("unreachable", "Connection refused")


def test_an_unknown_certificate_is_refused(tmp_path: Path) -> None:
    import ssl

    from dtctl.operations.credentials import Authority

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
