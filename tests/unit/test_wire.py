"""Frames."""

from __future__ import annotations

import io
import os
import select

import pytest

from dtctl.agent.wire import Gone, Wire


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
        assert select.select([wire.fileno()], [], [], 10)[0]
        assert wire.receive()[0]["type"] == "a"
        assert wire.receive()[0]["type"] == "b"
        os.close(writing)
        for _ in range(2):
            with pytest.raises(Gone):
                wire.poll(10)
        assert wire.is_gone()
