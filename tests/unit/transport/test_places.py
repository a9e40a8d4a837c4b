"""How long a hanging host keeps its slot in a fan-out: not for the whole of its timeout."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.errors import TransportError
from dtctl.model import Host, Local, SshSettings
from dtctl.transport import fanout, stream
from dtctl.transport.fanout import ALONE_S, IDLE_S, fan_out
from dtctl.transport.ssh import connection, transport
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.transport import SshTransport
from dtctl.transport.stream import RemoteExit, StreamSession
from dtctl.transport.timeouts import SilenceTimer
from dtctl.transport.wire import encode
from tests.unit.transport.test_timeouts import GREETING
from tests.waiting import PATIENCE_S, eventually

BEGIN = 1000.0


class Clock:
    """A clock that stands still until a test turns it. `looks`: how often it was read."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all waits; the fan-out reads it often."""
    made = Clock()
    for module in (fanout, stream, connection, transport):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(fanout, "LOOKED_EVERY_S", 0.005)
    return made


class Beside:
    """A fan-out with one slot: the first host hangs, and another one waits for the slot."""

    def __init__(self, clock: Clock, hang: Callable[[], object]) -> None:
        self._clock = clock
        self._hang = hang
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._fan_out, daemon=True)

    def _fan_out(self) -> None:
        fan_out(["hung", "other"], self._work, width=1)

    def _work(self, name: str) -> None:
        if name == "hung":
            self._hang()
        else:
            self._asked.set()

    def keeps_it_until(self, s: float) -> None:
        """Checks that the fan-out serves no other host just before this time of the clock, and serves one after it."""
        self._clock.now = s - 0.001
        before = self._clock.looks
        eventually(lambda: self._clock.looks > before + 4)
        assert not self._asked.is_set(), "the host has its place still"
        self._clock.now = s
        assert self._asked.wait(PATIENCE_S), "the host hangs, and another one is asked meanwhile"


@contextmanager
def beside(clock: Clock, hang: Callable[[], object], release: Callable[[], object]) -> Iterator[Beside]:
    made = Beside(clock, hang)
    made._thread.start()
    try:
        yield made
    finally:
        release()
        made._thread.join(PATIENCE_S)
        assert not made._thread.is_alive()


class Held:
    """A stream with the bytes that a test puts there."""

    def __init__(self) -> None:
        self.coming: queue.Queue[bytes] = queue.Queue()
        self.reading = threading.Semaphore(0)
        """Released each time when a read begins."""

    def read(self, timeout_s: float | None) -> bytes:
        self.reading.release()
        return self.coming.get()

    def write(self, data: bytes, silence: SilenceTimer) -> None: ...
    def close(self) -> None: ...

    def ending(self) -> RemoteExit:
        return RemoteExit()


def session_of(held: Held) -> StreamSession:
    return StreamSession(Host("gpu-3", Local()), held)


def greeted(held: Held) -> StreamSession:
    session = session_of(held)
    held.coming.put(b"\x1e" + encode(GREETING))
    session.greeted()
    held.reading.acquire()
    return session


def test_an_agent_without_a_greeting_frees_its_slot(clock: Clock) -> None:
    held = Held()
    with beside(clock, lambda: session_of(held).greeted(), lambda: held.coming.put(b"\x1e" + encode(GREETING))) as one:
        held.reading.acquire()
        one.keeps_it_until(BEGIN + ALONE_S)


def test_a_busy_agent_frees_its_slot_after_the_last_request(clock: Clock) -> None:
    held = Held()
    session = greeted(held)

    def ask() -> None:
        clock.now = BEGIN + 100
        session.send({"type": "status"})
        session.receive()

    with beside(clock, ask, lambda: held.coming.put(encode({"type": "progress", "phase": "setup"}))) as one:
        held.reading.acquire()
        one.keeps_it_until(BEGIN + 100 + ALONE_S)


def test_an_agent_that_sends_content_keeps_its_slot_meanwhile(clock: Clock) -> None:
    held = Held()
    session = greeted(held)

    def listen() -> None:
        clock.now = BEGIN + 100
        while session.receive().type == "output":
            pass

    held.coming.put(encode({"type": "output", "stream": 1}, b"a line\n"))
    with beside(clock, listen, lambda: held.coming.put(encode({"type": "progress", "phase": "setup"}))) as one:
        held.reading.acquire()  # of received bytes
        held.reading.acquire()  # of missing bytes
        one.keeps_it_until(BEGIN + 100 + ALONE_S)


def test_progress_messages_alone_do_not_keep_a_slot(clock: Clock) -> None:
    held = Held()
    session = greeted(held)

    def listen() -> None:
        while session.receive().type == "progress":
            clock.now = BEGIN + 1

    held.coming.put(encode({"type": "progress", "phase": "setup"}))
    with beside(clock, listen, lambda: held.coming.put(encode({"type": "output", "stream": 1}, b"x"))) as one:
        held.reading.acquire()
        held.reading.acquire()
        one.keeps_it_until(BEGIN + ALONE_S)


class Door:
    """A port that accepts connections. A test decides what it sends, and when."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.guests: list[socket.socket] = []

    def reach(self, known_hosts: Path) -> Host:
        port = self.server.getsockname()[1]
        return Host("gpu-3", SshSettings("127.0.0.1", "train", port, known_hosts=str(known_hosts)))

    def let_in(self) -> socket.socket:
        guest, _ = self.server.accept()
        self.guests.append(guest)
        return guest

    def close(self) -> None:
        """Sends waiting clients something that ends them."""
        for guest in self.guests:
            with suppress(OSError):
                guest.sendall(b"SSH-2.0-door\r\n\0\0\0\0")
            guest.close()
        self.server.close()


def log_in(door: Door, known_hosts: Path) -> None:
    with suppress(TransportError):
        SshTransport(ConfigFiles(known_hosts)).open(door.reach(known_hosts))


@pytest.fixture
def known_hosts(tmp_path: Path) -> Path:
    file = tmp_path / "known_hosts"
    file.touch()
    return file


def test_a_silent_server_frees_its_slot(clock: Clock, known_hosts: Path) -> None:
    door = Door()
    with beside(clock, lambda: log_in(door, known_hosts), door.close) as one:
        heard = door.let_in().recv(1)
        assert heard == b"S", "dtctl has greeted"
        one.keeps_it_until(BEGIN + IDLE_S)


def test_a_login_keeps_its_slot_for_a_limited_time(clock: Clock, known_hosts: Path) -> None:
    """The first bytes of an SSH server distinguish it from a host that is down."""
    door = Door()
    with beside(clock, lambda: log_in(door, known_hosts), door.close) as one:
        guest = door.let_in()
        guest.sendall(b"SSH-2.0-door\r\n")
        heard = b""
        while b"curve25519" not in heard:  # the first packet, which follows the greeting
            heard += guest.recv(65536)
        one.keeps_it_until(BEGIN + ALONE_S)


def test_a_login_without_a_session_frees_its_slot(clock: Clock) -> None:
    begun, released = threading.Event(), threading.Event()

    def create_session() -> Any:
        begun.set()
        released.wait()
        raise EOFError

    login: Any = SimpleNamespace(
        connection=SimpleNamespace(timeout_s=PATIENCE_S, create_session=create_session, close=lambda: None),
        destination="gpu-3",
    )

    def hang() -> None:
        with suppress(TransportError):
            transport._run_loader(login)

    with beside(clock, hang, released.set) as one:
        assert begun.wait(PATIENCE_S)
        one.keeps_it_until(BEGIN + ALONE_S)
