"""When the coordinator's hub looks at what agents say, on a clock that is turned by hand."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from dtctl.agent.link import hub as hubs
from dtctl.agent.link.hub import MANY, REST_S, Hub
from dtctl.agent.link.peer import encode
from dtctl.agent.records.messages import PROTOCOL
from tests.agent.link.links import hello, state

SENT_BYTES = 1 << 16


class PlainStream:
    """In place of a TlsStream: the other end is in a test's hands, and reads when the test does."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._own, self.far = socket.socketpair()
        self._own.setblocking(False)
        self._pulled = b""
        self._queue = b""

    def fileno(self) -> int:
        return self._own.fileno()

    @property
    def is_waiting(self) -> bool:
        return bool(self._queue)

    def pull(self) -> bool:
        self._pulled = self._own.recv(1 << 20)
        return True

    def read(self) -> bytes:
        pulled, self._pulled = self._pulled, b""
        return pulled

    def write(self, data: bytes) -> None:
        self._queue += data
        self.push()

    def push(self) -> None:
        try:
            while self._queue:
                self._queue = self._queue[self._own.send(self._queue) :]
        except BlockingIOError:
            pass

    def finish(self) -> None: ...

    def discard(self) -> None: ...

    def close(self) -> None:
        self._own.close()
        self.far.close()


class Door:
    """In place of the Acceptor: lets in whom a test brings."""

    is_resting = False

    def __init__(self, *_: Any) -> None:
        self.brought: list[Any] = []
        self._end, self._far = socket.socketpair()

    def step(self, now: float) -> list[Any]:
        brought, self.brought = self.brought, []
        return brought

    def fileno(self) -> int:
        return self._end.fileno()

    def due(self) -> None:
        return None

    def close(self) -> None:
        self._end.close()
        self._far.close()


class Crowd:
    """A hub and agents that have said hello; the time is 100."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.door = Door()
        monkeypatch.setattr(hubs, "Acceptor", lambda *_: self.door)
        identity: Any = object()
        self.hub = Hub("127.0.0.1:0", 0, identity, [], lambda _: ([], False), 99.0)
        self.streams = [PlainStream(f"h{number}") for number in range(count)]
        self.door.brought = [(stream, identity) for stream in self.streams]
        self.hub.step(99.0)
        for stream in self.streams:
            stream.far.send(encode(hello(stream.host)))
        assert len(self.hub.step(99.5)) == count
        self.hub.step(99.9)

    def say(self, number: int) -> None:
        self.streams[number].far.send(encode(state()))

    def heard(self, now: float) -> list[str]:
        return [host for host, message in self.hub.step(now) if message["type"] == "state"]

    @property
    def is_awaited(self) -> bool:
        """The hub is to be woken up when somebody says something."""
        return self.hub._selector.fileno() in self.hub.readers()


@pytest.fixture
def gather(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Crowd] = []

    def gather(count: int) -> Crowd:
        made.append(Crowd(monkeypatch, count))
        return made[-1]

    yield gather
    for one in made:
        one.hub.close()


def test_one_look_serves_several_of_many_agents(gather: Any) -> None:
    crowd = gather(MANY)
    crowd.say(0)
    assert crowd.heard(100.0) == ["h0"], "who speaks first is heard at once"
    assert not crowd.is_awaited
    assert crowd.hub.due() <= 100.0 + REST_S
    crowd.say(1)
    crowd.say(2)
    assert crowd.heard(100.0 + REST_S / 2) == []
    assert not crowd.is_awaited
    assert sorted(crowd.heard(100.0 + REST_S)) == ["h1", "h2"]
    assert crowd.heard(100.0 + 2 * REST_S) == []
    assert crowd.is_awaited


def test_of_few_agents_everybody_is_heard_at_once(gather: Any) -> None:
    crowd = gather(MANY - 1)
    for number, now in enumerate([100.0, 100.001, 100.002]):
        crowd.say(number)
        assert crowd.is_awaited
        assert crowd.heard(now) == [f"h{number}"]


def test_an_agent_that_does_not_read_is_written_to_when_it_does(gather: Any) -> None:
    crowd = gather(2)
    crowd.hub.send("h0", {"type": "welcome", "v": PROTOCOL, "events_from": 0})
    watched = crowd.hub._selector.get_key(crowd.streams[0])
    for _ in range(100):
        crowd.hub.send("h0", {"type": "orders", "text": "x" * SENT_BYTES})
    assert crowd.streams[0].is_waiting
    assert crowd.hub._selector.get_key(crowd.streams[0]) != watched
    crowd.streams[0].far.setblocking(False)
    now, read = 100.0, 0
    while crowd.streams[0].is_waiting:
        try:
            read += len(crowd.streams[0].far.recv(1 << 20))
        except BlockingIOError:
            now += 0.001
            crowd.hub.step(now)
    crowd.hub.step(now)
    assert read > 50 * SENT_BYTES
    assert crowd.hub._selector.get_key(crowd.streams[0]) == watched
