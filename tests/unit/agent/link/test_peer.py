"""Beats, silence, the look-up of the address and the delays between dials, on a clock that is turned by hand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dtctl.agent.link.dialer import Names
from dtctl.agent.link.peer import (
    BEAT_S,
    RETRY_LAST_S,
    SILENCE_S,
    SLACK_S,
    SOON_FOR_S,
    Peer,
    Retry,
    Violation,
    decode,
    encode,
)
from dtctl.agent.link.tls import Lost
from dtctl.agent.records.kinds import checked
from dtctl.agent.records.messages import FROM_COORDINATOR, PROTOCOL, Welcome
from tests.waiting import eventually

WELCOME = checked(Welcome, {"type": "welcome", "v": PROTOCOL, "events_from": 0})


class RecordedStream:
    """Gives what is put into `arrives`, piece by piece, and keeps what is written."""

    def __init__(self) -> None:
        self.arrives: list[bytes] = []
        self.written: list[bytes] = []
        self._pulled = b""

    def pull(self) -> bool:
        if not self.arrives:
            return False
        self._pulled += self.arrives.pop(0)
        return True

    def read(self) -> bytes:
        pulled, self._pulled = self._pulled, b""
        return pulled

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.fixture
def stream() -> RecordedStream:
    return RecordedStream()


@pytest.fixture
def peer(stream: RecordedStream) -> Peer:
    return Peer(stream, FROM_COORDINATOR, now=100.0)  # type: ignore[arg-type]


def test_beats_are_sent_when_idle_and_never_delivered(peer: Peer, stream: RecordedStream) -> None:
    peer.keep(102.0)
    assert stream.written == []
    peer.send({"type": "state"}, 102.0)
    peer.keep(104.0)
    assert len(stream.written) == 1
    assert peer.due() == 105.0
    peer.keep(105.0)
    assert decode(stream.written[1].strip()) == {"type": "beat"}
    assert peer.due() == 108.0
    stream.arrives = [encode({"type": "beat"}) + encode(WELCOME) + encode({"type": "beat"})]
    assert peer.receive(106.0) == [WELCOME]
    assert peer.last_received == 106.0


def test_a_peer_that_is_silent_for_ten_seconds_is_lost(peer: Peer, stream: RecordedStream) -> None:
    stream.arrives = [encode({"type": "beat"})]
    peer.receive(103.0)
    for now in (105.0, 108.0, 111.0, 112.9):
        peer.keep(now)
        assert peer.due() <= 113.0
    with pytest.raises(Lost, match="it sent nothing for 10 s"):
        peer.keep(113.0)


def test_a_partial_line_prevents_a_timeout(peer: Peer, stream: RecordedStream) -> None:
    whole = encode(WELCOME)
    stream.arrives = [whole[:5], whole[5:]]
    assert peer.receive(109.0) == []
    peer.keep(118.0)
    assert peer.receive(118.5) == [WELCOME]


def test_an_empty_read_does_not_prevent_a_timeout(peer: Peer) -> None:
    assert peer.receive(109.0) == []
    assert peer.last_received == 100.0


def test_messages_of_the_wrong_role_are_refused(peer: Peer, stream: RecordedStream) -> None:
    stream.arrives = [encode({"type": "hello", "v": 1})]
    with pytest.raises(Violation):
        peer.receive(101.0)


def retry(random: float = 1.0) -> Retry:
    return Retry(lambda: random)


def test_a_beat_is_sent_half_a_second_before_it_is_due(peer: Peer, stream: RecordedStream) -> None:
    peer.keep(100.0 + BEAT_S - SLACK_S - 0.01)
    assert stream.written == []
    peer.keep(100.0 + BEAT_S - SLACK_S)
    assert len(stream.written) == 1


def test_due_is_the_sooner_of_the_next_beat_and_the_end_of_the_silence(peer: Peer) -> None:
    assert peer.due() == 100.0 + BEAT_S
    peer.send({"type": "state"}, 109.0)
    assert peer.due() == 100.0 + SILENCE_S


@pytest.mark.parametrize(("random", "delays"), [(1.0, [0.125, 0.25, 0.5, 1, 2]), (0.0, [0.0625, 0.125, 0.25, 0.5, 1])])
def test_delays_double_up_to_three_seconds_in_the_first_minute(random: float, delays: list[float]) -> None:
    made = retry(random)
    assert [made.next_s(100.0 + number) for number in range(5)] == delays


def test_after_a_minute_delays_double_up_to_fifteen_seconds() -> None:
    made = retry()
    for _ in range(10):
        made.next_s(100.0)
    assert made.next_s(100.0 + SOON_FOR_S - 0.1) == 3
    assert [made.next_s(100.0 + SOON_FOR_S) for _ in range(4)] == [6, 12, RETRY_LAST_S, RETRY_LAST_S]


def test_success_resets_the_delays_and_the_minute() -> None:
    made = retry()
    for _ in range(10):
        made.next_s(100.0)
    made.reset()
    assert [made.next_s(1000.0) for _ in range(7)] == [0.125, 0.25, 0.5, 1, 2, 3, 3]


real = socket.getaddrinfo


class SlowSystem:
    """A getaddrinfo that knows nothing but numbers until `answer` is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Callable[[], list[Any]] | None = None
        self._let_go = threading.Event()

    def getaddrinfo(self, host: str, port: int, family: int, kind: int, protocol: int, flags: int) -> Any:
        if flags & socket.AI_NUMERICHOST:
            return real(host, port, family, kind, protocol, flags)
        self.asked += 1
        assert self._let_go.wait(60)
        assert self.answer
        return self.answer()

    def say(self, *addresses: str) -> None:
        self.answer = lambda: [(socket.AF_INET, 1, 6, "", (address, 2221)) for address in addresses]
        self._let_go.set()

    def fail(self) -> None:
        def answer() -> list[Any]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        self.answer = answer
        self._let_go.set()


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SlowSystem:
    slow = SlowSystem()
    monkeypatch.setattr(socket, "getaddrinfo", slow.getaddrinfo)
    return slow


@pytest.mark.parametrize(
    ("address", "family", "place"),
    [
        ("10.0.0.1:2221", socket.AF_INET, ("10.0.0.1", 2221)),
        ("[::1]:2221", socket.AF_INET6, ("::1", 2221, 0, 0)),
        ("::1:2221", socket.AF_INET6, ("::1", 2221, 0, 0)),
    ],
)
def test_numeric_addresses_are_not_resolved(system: SlowSystem, address: str, family: int, place: Any) -> None:
    names = Names(address)
    names.resolve()
    assert names.next() == (family, place)
    assert system.asked == 0


def test_name_resolution_is_asynchronous_and_done_once(system: SlowSystem) -> None:
    names = Names("gpu-a:2221")
    for _ in range(3):
        names.resolve()
        assert names.next() is None
    system.say("10.0.0.1", "10.0.0.2")
    assert eventually(names.next) == (socket.AF_INET, ("10.0.0.1", 2221))
    assert names.next() == (socket.AF_INET, ("10.0.0.2", 2221))
    assert names.next() == (socket.AF_INET, ("10.0.0.1", 2221))
    assert system.asked == 1


def test_an_unknown_name_is_a_readable_error(system: SlowSystem) -> None:
    system.fail()
    names = Names("gpu-a:2221")
    names.resolve()
    with pytest.raises(OSError, match=r"^gpu-a: Name or service not known$"):
        eventually(names.next)


def test_the_last_answer_counts_when_there_is_none_later(system: SlowSystem) -> None:
    system.say("10.0.0.1")
    names = Names("gpu-a:2221")
    names.resolve()
    place = eventually(names.next)
    system.fail()
    eventually(lambda: asked_again(names, system))
    assert names.next() == place


def asked_again(names: Names, system: SlowSystem) -> bool:
    names.resolve()
    return system.asked > 1
