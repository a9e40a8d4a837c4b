"""Beats, silence and the delays between dials, on a clock that is turned by hand."""

from __future__ import annotations

import itertools

import pytest

from dtctl.agent.link.stream import FROM_COORDINATOR, PROTOCOL, Lost, Peer, Retry, Violation, decode, encode

WELCOME = {"type": "welcome", "v": PROTOCOL, "events_from": 0, "progress": False, "may_start": True}


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


def test_beats_are_sent_in_silence_only_and_never_shown(peer: Peer, stream: RecordedStream) -> None:
    peer.keep(102.0)
    assert stream.written == []
    peer.send({"type": "state"}, 102.0)
    peer.keep(104.0)
    assert len(stream.written) == 1
    assert peer.keepalive.due() == 105.0
    peer.keep(105.0)
    assert decode(stream.written[1].strip()) == {"type": "beat"}
    assert peer.keepalive.due() == 108.0
    stream.arrives = [encode({"type": "beat"}) + encode(WELCOME) + encode({"type": "beat"})]
    assert peer.receive(106.0) == [WELCOME]
    assert peer.keepalive.last_heard == 106.0


def test_a_peer_that_is_silent_for_ten_seconds_is_lost(peer: Peer, stream: RecordedStream) -> None:
    stream.arrives = [encode({"type": "beat"})]
    peer.receive(103.0)
    for now in (105.0, 108.0, 111.0, 112.9):
        peer.keep(now)
        assert peer.keepalive.due() <= 113.0
    with pytest.raises(Lost, match="nothing was heard from it for 10 s"):
        peer.keep(113.0)


def test_a_part_of_a_line_is_a_sign_of_life(peer: Peer, stream: RecordedStream) -> None:
    whole = encode(WELCOME)
    stream.arrives = [whole[:5], whole[5:]]
    assert peer.receive(109.0) == []
    peer.keep(118.0)
    assert peer.receive(118.5) == [WELCOME]


def test_nothing_is_no_sign_of_life(peer: Peer) -> None:
    assert peer.receive(109.0) == []
    assert peer.keepalive.last_heard == 100.0


def test_what_it_may_not_say_is_not_heard(peer: Peer, stream: RecordedStream) -> None:
    stream.arrives = [encode({"type": "hello", "v": 1})]
    with pytest.raises(Violation):
        peer.receive(101.0)


def test_delays_double_up_to_three_seconds_in_the_first_minute_and_to_fifteen_after_it() -> None:
    longest = Retry(lambda: 1.0)
    assert [longest.next_s(1000.0 + second) for second in range(5)] == [0.125, 0.25, 0.5, 1, 2]
    assert [longest.next_s(1059.0), longest.next_s(1061.0), longest.next_s(1065.0)] == [3, 6, 12]
    assert [longest.next_s(1080.0), longest.next_s(2000.0)] == [15, 15]


def test_who_was_answered_begins_anew_whenever_that_is_lost() -> None:
    longest = Retry(lambda: 1.0)
    for second in range(200):
        longest.next_s(1000.0 + second)
    longest.reset()
    assert [longest.next_s(9000.0 + second) for second in range(5)] == [0.125, 0.25, 0.5, 1, 2]


def test_delays_are_drawn_between_half_and_all() -> None:
    shortest = Retry(lambda: 0.0)
    assert [shortest.next_s(1000.0) for _ in range(5)] == [0.0625, 0.125, 0.25, 0.5, 1]
    drawn = Retry(itertools.cycle([0.0, 0.5]).__next__)
    assert [drawn.next_s(1000.0), drawn.next_s(1000.0)] == [0.0625, 0.1875]
