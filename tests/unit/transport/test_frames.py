"""Frames as bytes, on both sides."""

from __future__ import annotations

import io
import json
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent import conversation
from dtctl.agent.conversation import Conversation, Gone, Wire
from dtctl.agent.host.errors import Refused
from dtctl.transport.seam import Message
from dtctl.transport.wire import LINE_LIMIT, Decoder, WireError, encode
from tests.fuzz import cases
from tests.waiting import PATIENCE_S, eventually


def started() -> Decoder:
    decoder = Decoder()
    decoder.feed(b"\x1e")
    return decoder


def test_a_frame_is_one_line_of_json_and_the_bytes_it_announces() -> None:
    assert encode({"type": "stop", "reason": "a\nb"}) == b'{"type":"stop","reason":"a\\nb"}\n'
    assert encode({"type": "file"}, b"a\nb") == b'{"type":"file","bytes":3}\na\nb'


@pytest.mark.parametrize("value", ["ünïcode ☃", "\udc80 a lone surrogate", 'quote" and $HOME and \\', "x" * 100_000])
def test_any_text_is_decoded_as_sent(value: str) -> None:
    assert started().feed(encode({"type": "t", "value": value})) == [Message({"type": "t", "value": value})]


def test_only_the_end_of_the_noise_before_the_first_frame_is_kept() -> None:
    decoder = Decoder()
    assert decoder.feed(b"Welcome!\n" + b"." * 10_000) == []
    assert not decoder.started
    assert decoder.feed(b'last words\n\x1e{"type":"greeting"}\n') == [Message({"type": "greeting"})]
    assert decoder.started
    assert len(decoder.noise) == 4096
    assert decoder.noise.endswith(b"...last words\n")


NO_FRAMES = [
    b"Traceback (most recent call last):",
    b"[]",
    b'{"kind":1}',
    b'{"type":1}',
    b"\xff\xfe",
    b'{"type":"a","bytes":-1}',
    b'{"type":"a","bytes":true}',
    b'{"type":"a","bytes":"9"}',
    b'{"type":"a","bytes":999999999999}',
    b'{"type":"a","time":NaN}',
]
"""Lines that neither side accepts."""


@pytest.mark.parametrize(
    "line",
    [
        *NO_FRAMES,
        b'{"type":"output","bytes":2000000}',
        b'{"type":"a","time":1e999}',
        b'{"type":"a","n":' + b"9" * 5000 + b"}",
        b'{"type":"a","n":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_invalid_frame_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        started().feed(line + b"\n")


def test_numbers_that_json_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"type": "a", "value": float("nan")})


def test_a_long_line_may_come_in_many_small_pieces() -> None:
    decoder = started()
    line = json.dumps({"type": "big", "value": "x" * 3_000_000}).encode() + b"\n"
    pieces = [line[at : at + 1000] for at in range(0, len(line), 1000)]
    assert [message.type for piece in pieces for message in decoder.feed(piece)] == ["big"]


def test_a_line_without_an_end_is_refused_when_it_is_too_long() -> None:
    decoder = started()
    for _ in range(LINE_LIMIT >> 20):
        assert decoder.feed(b" " * (1 << 20)) == []
    with pytest.raises(WireError, match="longer"):
        decoder.feed(b" ")
    with pytest.raises(WireError, match="longer"):
        started().feed(b'{"type":"a"' + b" " * LINE_LIMIT + b"}\n")


NAMES = st.text(max_size=20).filter(lambda name: name not in ("type", "bytes"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=4,
)
PAYLOADS = st.binary(max_size=200) | st.sampled_from([b"\n{}\x1e" * times for times in (1, 7, 49)])
FRAMES = st.tuples(st.dictionaries(NAMES, VALUES, max_size=3), st.text(max_size=10), PAYLOADS)


@cases
@given(st.lists(FRAMES, max_size=4), st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_frames_survive_any_split(frames: list[tuple[dict[str, Any], str, bytes]], cuts: list[int]) -> None:
    sent = [({"type": kind, **fields}, payload) for fields, kind, payload in frames]
    stream = b"".join(encode(fields, payload) for fields, payload in sent)
    decoder, at = started(), 0
    found: list[Message] = []
    while at < len(stream):
        step = cuts[len(found) % len(cuts)]
        found += decoder.feed(stream[at : at + step])
        at += step
    expected = [({**fields, "bytes": len(payload)} if payload else fields, payload) for fields, payload in sent]
    assert [(message.fields, message.payload) for message in found] == expected
    assert sum(message.size for message in found) == len(stream)


PIECES = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(
        [b"\x1e", b"\n", b"{", b'{"type":"log","bytes":5}\n', b'{"type":"a"}\n', b"[[[[", b'"\\ud800"', b"1e99"]
    ),
)


@cases
@given(st.lists(PIECES, max_size=30))
def test_any_bytes_are_frames_or_a_wire_error(pieces: list[bytes]) -> None:
    decoder = Decoder()
    try:
        for piece in pieces:
            for message in decoder.feed(piece):
                assert isinstance(message.type, str)
    except WireError:
        pass


def test_frames_and_their_bytes_come_back_as_sent() -> None:
    sent = io.BytesIO()
    wire = Wire(io.BytesIO(), sent)
    wire.send({"type": "log", "task": "worker:1"}, b"a\nb\0")
    wire.send({"type": "result", "text": "line\nbreak 训"})
    back = Wire(io.BytesIO(sent.getvalue()), io.BytesIO())
    assert back.receive() == ({"type": "log", "task": "worker:1", "bytes": 4}, b"a\nb\0")
    assert back.receive() == ({"type": "result", "text": "line\nbreak 训"}, b"")
    with pytest.raises(Gone):
        back.receive()


@pytest.mark.parametrize("cut", [b'{"type": "x"', b'{"type": "x", "bytes": 5}\nab'])
def test_a_truncated_frame_is_the_end(cut: bytes) -> None:
    with pytest.raises(Gone):
        Wire(io.BytesIO(cut), io.BytesIO()).receive()


def test_a_closed_reader_is_the_end() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as writer, pytest.raises(Gone):
        Wire(io.BytesIO(), writer).send({"type": "x"})


def test_listening_wire_reports_frames_and_the_end_without_waiting() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader:
        wire = Wire(reader, io.BytesIO())
        wire.start_listening()
        assert wire.poll(0.01) is None
        assert not wire.is_gone()
        os.write(writing, b'{"type": "a"}\n{"type": "b"}\n')
        assert select.select([wire.fileno()], [], [], PATIENCE_S)[0]
        assert wire.receive()[0]["type"] == "a"
        assert wire.receive()[0]["type"] == "b"
        os.close(writing)
        for _ in range(2):
            with pytest.raises(Gone):
                wire.poll(PATIENCE_S)
        assert wire.is_gone()


@pytest.mark.parametrize(
    "line",
    [*NO_FRAMES, b"", b"null", b'{"type":["stop"]}', b"[" * 100_000, b'{"type":"a","x":' + b"9" * 100_000 + b"}"],
)
@pytest.mark.parametrize("listening", [False, True])
def test_invalid_frame_is_refused_by_both_readers(line: bytes, listening: bool) -> None:
    wire = Wire(io.BytesIO(line + b"\n"), io.BytesIO())
    if listening:
        wire.start_listening()
    with pytest.raises(Refused) as refused:
        wire.receive()
    assert refused.value.code == "bad_request"
    assert len(refused.value.detail) < 300


def test_a_line_that_never_ends_is_not_kept() -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, into: memoryview) -> int:  # type: ignore[override]
            into[:] = b"x" * len(into)
            return len(into)

    with pytest.raises(Refused, match="a line of more than"):
        Wire(io.BufferedReader(Endless()), io.BytesIO()).receive()


frames = st.tuples(
    st.dictionaries(st.sampled_from(["type", "bytes", "x"]), st.text(max_size=5) | st.integers() | st.none()),
    st.binary(max_size=20),
).map(lambda frame: json.dumps({**frame[0], "type": "a", "bytes": len(frame[1])}).encode() + b"\n" + frame[1])


@cases
@given(
    stream=st.binary(max_size=300) | st.lists(frames | st.binary(max_size=10), max_size=5).map(b"".join), data=st.data()
)
def test_any_bytes_cut_anywhere_are_frames_or_the_end_or_refused(stream: bytes, data: st.DataObject) -> None:
    wire = Wire(io.BytesIO(stream[: data.draw(st.integers(0, len(stream)))]), io.BytesIO())
    with suppress(Gone, Refused):
        while True:
            fields, payload = wire.receive()
            assert isinstance(fields["type"], str)
            assert len(payload) == fields.get("bytes", 0)


def sent_by(written: io.BytesIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_a_long_request_sends_beats_with_its_current_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "BEAT_S", 0.05)
    written = io.BytesIO()
    talk = Conversation("", Wire(io.BytesIO(), written))
    with talk.at("status"):
        with talk.at("checkpoints"):
            eventually(lambda: len(sent_by(written)) >= 2)
        eventually(lambda: sent_by(written)[-1]["at"] == "status")
    first, second = sent_by(written)[:2]
    assert (first["type"], first["at"], second["at"]) == ("beat", "checkpoints", "checkpoints")


class Clock:
    """The clock of one thread that it starts.

    It advances when a test turns it, and then wakes sleepers that are due.
    """

    def __init__(self) -> None:
        self._now, self._over = 100.0, False
        self._wake_at: float | None = None
        self._changed = threading.Condition()

    def start_new_thread(self, work: Callable[[], None], arguments: tuple[()]) -> None:
        self._thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._thread.start()

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is not self._thread:
            raise ValueError("left by an earlier test")
        with self._changed:
            self._wake_at = self._now + seconds
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._wake_at is None)
        if self._over:
            raise ValueError("the stream was closed")

    def turn(self, seconds: float, *, over: bool = False) -> None:
        """Advances the clock once the thread sleeps. `over`: that was its last sleep."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._wake_at is not None, PATIENCE_S)
            self._now += seconds
            self._over = over
            if self._wake_at is not None and self._now >= self._wake_at:
                self._wake_at = None
                self._changed.notify_all()

    def end(self) -> None:
        self.turn(1e6, over=True)
        self._thread.join(PATIENCE_S)


def test_no_beats_while_other_frames_are_sent_or_the_controller_is_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, written = Clock(), io.BytesIO()
    monkeypatch.setattr(conversation, "time", clock)
    wire = Wire(io.BytesIO(), written)
    monkeypatch.setattr(conversation, "_thread", clock)
    talk = Conversation("", wire)
    with talk.at("up"):
        for _ in range(40):
            talk.send("progress", {})
            clock.turn(conversation.BEAT_S / 5)
        with talk.at(None):
            for _ in range(3):
                clock.turn(2 * conversation.BEAT_S)
        assert {frame["type"] for frame in sent_by(written)} == {"progress"}
        for _ in range(3):
            clock.turn(2 * conversation.BEAT_S)
        clock.end()
    assert sent_by(written)[-1]["type"] == "beat"
