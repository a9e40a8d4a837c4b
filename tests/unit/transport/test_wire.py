"""Frames."""

from __future__ import annotations

import io
import json
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent import conversation
from dtctl.agent.conversation import Conversation, Gone, Wire
from dtctl.agent.host.errors import Refused
from tests.fuzz import cases
from tests.waiting import PATIENCE_S, eventually


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
def test_a_frame_that_is_cut_off_is_the_end(cut: bytes) -> None:
    with pytest.raises(Gone):
        Wire(io.BytesIO(cut), io.BytesIO()).receive()


def test_a_closed_reader_is_the_end() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as writer, pytest.raises(Gone):
        Wire(io.BytesIO(), writer).send({"type": "x"})


def test_a_listening_wire_tells_frames_and_the_end_without_being_waited_for() -> None:
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
    [
        b"",
        b"Traceback (most recent call last):",
        b"[]",
        b"null",
        b'{"kind":1}',
        b'{"type":1}',
        b'{"type":["stop"]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"type":"a","x":' + b"9" * 100_000 + b"}",
        b'{"type":"a","x":NaN}',
        b'{"type":"a","bytes":-1}',
        b'{"type":"a","bytes":true}',
        b'{"type":"a","bytes":"9"}',
        b'{"type":"a","bytes":999999999999}',
    ],
)
@pytest.mark.parametrize("listening", [False, True])
def test_what_is_no_frame_is_refused_however_it_is_read(line: bytes, listening: bool) -> None:
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


def test_a_request_that_is_silent_beats_and_says_what_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "BEAT_S", 0.05)
    written = io.BytesIO()
    talk = Conversation("", Wire(io.BytesIO(), written))
    talk.beats.at("status")
    with talk.at("checkpoints"):
        eventually(lambda: len(sent_by(written)) >= 2)
    eventually(lambda: sent_by(written)[-1]["at"] == "status")
    first, second = sent_by(written)[:2]
    assert (first["type"], first["at"], second["at"]) == ("beat", "checkpoints", "checkpoints")


class Clock:
    """Of one thread that it starts. It goes on when it is turned; who sleeps is awake when that was far enough."""

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
        """Once the thread sleeps. `over`: that was its last sleep."""
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


def test_nothing_beats_while_something_else_is_said_or_the_controller_is_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, written = Clock(), io.BytesIO()
    monkeypatch.setattr(conversation, "time", clock)
    wire = Wire(io.BytesIO(), written)
    monkeypatch.setattr(conversation, "_thread", clock)
    talk = Conversation("", wire)
    talk.beats.at("up")
    for _ in range(40):
        talk.send("progress", {})
        clock.turn(conversation.BEAT_S / 5)
    talk.beats.at(None)
    for _ in range(3):
        clock.turn(2 * conversation.BEAT_S)
    assert {frame["type"] for frame in sent_by(written)} == {"progress"}
    talk.beats.at("up")
    for _ in range(3):
        clock.turn(2 * conversation.BEAT_S)
    clock.end()
    assert sent_by(written)[-1]["type"] == "beat"
