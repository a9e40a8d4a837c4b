"""After a while without news a command says what it waits for, once for each host, whatever the command is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from dtctl.agent.records import PROTOCOL
from dtctl.errors import TransportError
from dtctl.model import Host, Local
from dtctl.operations.client import frames_of
from dtctl.transport import timeouts
from dtctl.transport.connect import Transports
from dtctl.transport.stream import RemoteExit, StreamSession
from dtctl.transport.timeouts import SilenceTimer, Waiting
from dtctl.transport.wire import encode
from tests.waiting import PATIENCE_S, eventually

HOST = Host("gpu-3", Local())
GREETING = {
    "type": "greeting", "protocol": PROTOCOL, "python": "3.11", "hostname": "gpu-3", "user": "train",
    "home": "/home/train", "root": "/home/train/.dtctl", "pid": 7, "time": 1.0, "free_bytes": 1, "cpus": 1,
}  # fmt: skip
RESULT = encode({"type": "result", "run": None})
BEAT = encode({"type": "beat"})


class Reports:
    """What was reported as awaited."""

    def __init__(self) -> None:
        self.lines: list[tuple[tuple[str, ...], str]] = []
        self.waiting = Waiting(on_wait=self._add)

    def _add(self, hosts: Sequence[str], what: str, waited_s: float) -> None:
        self.lines.append((tuple(sorted(hosts)), what))


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Reports:
    monkeypatch.setattr(timeouts, "NEWS_AFTER_S", 0.05)
    monkeypatch.setattr(timeouts, "LOOKED_EVERY_S", 0.01)
    return Reports()


class Script:
    """A stream that gives its pieces one after the other; a function is called, and gives nothing until it is true."""

    def __init__(self, *pieces: bytes | Callable[[], bool]) -> None:
        self._pieces = list(pieces)

    def read(self, timeout_s: float | None) -> bytes:
        piece = self._pieces[0]
        if isinstance(piece, bytes):
            return self._pieces.pop(0)  # type: ignore[return-value]
        if piece():
            self._pieces.pop(0)
        threading.Event().wait(0.01)
        raise TimeoutError

    def write(self, data: bytes, silence: SilenceTimer) -> None: ...

    def close(self) -> None: ...

    def ending(self) -> RemoteExit:
        return RemoteExit()


def answer(reports: Reports, *pieces: bytes | Callable[[], bool], within_s: float | None = PATIENCE_S) -> str:
    """The type of the answer to a request for `restart`."""
    session = StreamSession(HOST, Script(b"\x1e" + encode(GREETING), *pieces), reports.waiting)
    session.send({"type": "restart"})
    return [message.type for message in frames_of(session, "stopping", within_s=within_s)][-1]


def test_a_host_that_beats_and_does_not_answer_is_reported_as_awaited(reports: Reports) -> None:
    assert answer(reports, BEAT, lambda: bool(reports.lines), BEAT, RESULT) == "result"
    assert reports.lines == [(("gpu-3",), "no answer to `restart`")]


def test_a_host_whose_agent_does_not_greet_is_reported_as_awaited(reports: Reports) -> None:
    greeting = b"\x1e" + encode(GREETING)
    session = StreamSession(HOST, Script(lambda: bool(reports.lines), greeting), reports.waiting)
    session.greeted()
    assert reports.lines == [(("gpu-3",), "no greeting of its agent")]


def test_nobody_waits_for_news_of_what_is_followed(reports: Reports) -> None:
    silence = iter([False] * 30 + [True])
    assert answer(reports, lambda: next(silence), RESULT, within_s=None) == "result"
    assert reports.lines == []


def test_an_answer_that_has_begun_is_shown_by_its_command(reports: Reports) -> None:
    silence = iter([False] * 30 + [True])
    begun = encode({"type": "stopping", "grace_s": 30.0, "tasks": {}})
    assert answer(reports, begun, lambda: next(silence), RESULT) == "result"
    assert reports.lines == []


class Unreachable:
    """A transport that fails once `over` is set."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def open(self, host: Host) -> Any:
        self.over.wait(PATIENCE_S)
        raise TransportError(f"cannot reach {host.name}")


@contextmanager
def connecting(reports: Reports, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> Iterator[Transports]:
    """While it lasts, these hosts are being connected to, each by a thread."""
    transport, transports = Unreachable(), Transports(waiting=reports.waiting)
    monkeypatch.setattr(transports, "_transport", lambda opener: transport)

    def connect(name: str) -> None:
        with pytest.raises(TransportError):
            transports.open(Host(name, Local()))

    threads = [threading.Thread(target=connect, args=(name,)) for name in hosts]
    for thread in threads:
        thread.start()
    try:
        yield transports
    finally:
        transport.over.set()
        for thread in threads:
            thread.join(PATIENCE_S)


def test_hosts_that_are_being_connected_to_are_reported_once(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ("gpu-1", "gpu-2", "gpu-3")
    with connecting(reports, monkeypatch, *hosts):
        eventually(lambda: {name for names, _ in reports.lines for name in names} == {*hosts}, what="the hosts")
        threading.Event().wait(0.2)
    with connecting(reports, monkeypatch, *hosts):
        threading.Event().wait(0.2)
    assert {what for _, what in reports.lines} == {"no connection"}
    assert sorted(name for names, _ in reports.lines for name in names) == [*hosts]


def test_nothing_is_reported_while_a_person_is_asked(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    with reports.waiting.asking(), connecting(reports, monkeypatch, "gpu-1"):
        threading.Event().wait(0.2)
        assert reports.lines == []
