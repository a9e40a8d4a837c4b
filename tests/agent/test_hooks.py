"""Posts to receivers of every kind on the loopback address, by a process that the agent never waits for."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

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

Answer = Callable[[socket.socket, int], None]


@contextmanager
def bare_receiver(answer: Answer) -> Iterator[tuple[str, list[object]]]:
    """Answers each connection with bytes of its own; its address, and who has connected."""
    accepted: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65536)
                answer(connection, port)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, peer = listening.accept()
                    accepted.append(peer)
                    Thread(target=serve, args=(connection,), daemon=True).start()

        thread = Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}", accepted
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def memory_kb(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


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


# receivers that mean harm


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("to", ["http://127.0.0.1:{port}/elsewhere", "file:///etc/passwd", "http://[", "//x", ""])
def test_no_redirection_is_followed_to_any_place(code: int, to: str) -> None:
    def answer(connection: socket.socket, port: int) -> None:
        place = to.format(port=port)
        connection.sendall(f"HTTP/1.1 {code} {SECRET}\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())

    with bare_receiver(answer) as (url, accepted):
        sent = send(f"{url}/{SECRET}", {"Authorization": f"Bearer {SECRET}"}, {}, 60.0)
    assert sent["problem"] in ("redirect", "unreachable")
    assert SECRET not in sent["text"]
    assert len(accepted) == 1


def drips(connection: socket.socket, _: int) -> None:
    connection.sendall(b"HTTP/1.1 500 ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.05)


def continues(connection: socket.socket, _: int) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n" + b"A: b\r\n" * 50 + b"\r\n")


def sends_headers(connection: socket.socket, _: int) -> None:
    connection.sendall(b"HTTP/1.1 500 No\r\n")
    while True:
        connection.sendall(b"A: %s\r\n" % (b"b" * 60_000))


def sends_a_line(connection: socket.socket, _: int) -> None:
    while True:
        connection.sendall(b"x" * 65536)


def sends_a_body(connection: socket.socket, _: int) -> None:
    connection.sendall(b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def claims_a_body(connection: socket.socket, _: int) -> None:
    connection.sendall(b"HTTP/1.1 503 No\r\nContent-Length: %s\r\n\r\n" % (b"9" * 5000))


@pytest.mark.parametrize("answer", [drips, continues, sends_headers, sends_a_line, sends_a_body, claims_a_body])
def test_a_receiver_that_sends_without_end_costs_bounded_time_and_memory(answer: Answer) -> None:
    """Nobody looks at the sender meanwhile, as when its agent was killed: it ends by itself."""
    with bare_receiver(answer) as (url, accepted):
        at_work = delivery(f"{url}/{SECRET}", timeout_s=2.0)
        most = 0

        def has_ended() -> bool:
            nonlocal most
            most = max(most, memory_kb(at_work._process.pid))
            return at_work._process.poll() is not None

        eventually(has_ended, what="the end of the sender")
        sent = at_work.update(time.monotonic())
    assert sent is not None
    assert sent["problem"] in ("answer", "unreachable")
    assert len(sent["text"]) < 1000
    assert SECRET not in sent["text"]
    assert most < 100 * 1024
    assert len(accepted) == 1


def test_answer_that_is_no_tls_is_a_failure() -> None:
    with bare_receiver(sends_a_line) as (url, _):
        sent = send(url.replace("http:", "https:"), {"A": SECRET}, {}, 60.0)
    assert sent["problem"] == "unreachable"
