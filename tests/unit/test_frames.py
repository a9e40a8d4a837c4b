"""Frames as bytes, the controller's side."""

from __future__ import annotations

import json
import random

import pytest

from dtctl.transport.seam import Message
from dtctl.transport.wire import Decoder, WireError, encode


def started() -> Decoder:
    decoder = Decoder()
    decoder.feed(b"\x1e")
    return decoder


def test_a_frame_is_one_line_of_json_and_the_bytes_it_announces() -> None:
    assert encode({"type": "stop", "reason": "a\nb"}) == b'{"type":"stop","reason":"a\\nb"}\n'
    assert encode({"type": "file"}, b"a\nb") == b'{"type":"file","bytes":3}\na\nb'


@pytest.mark.parametrize("value", ["ünïcode ☃", "\udc80 a lone surrogate", 'quote" and $HOME and \\', "x" * 100_000])
def test_any_text_survives(value: str) -> None:
    assert started().feed(encode({"type": "t", "value": value})) == [Message({"type": "t", "value": value})]


def test_frames_cut_anywhere_come_out_whole() -> None:
    frames = [encode({"type": "log", "n": n}, b"\n{}\x1e" * n) for n in range(50)]
    stream = b"".join(frames)
    dice = random.Random(7)
    decoder, found, at = started(), [], 0
    while at < len(stream):
        step = dice.randint(1, 40)
        found += decoder.feed(stream[at : at + step])
        at += step
    assert [(message["n"], message.payload) for message in found] == [(n, b"\n{}\x1e" * n) for n in range(50)]


def test_noise_before_the_start_is_kept_apart_and_only_its_end() -> None:
    decoder = Decoder()
    assert decoder.feed(b"Welcome!\n" + b"." * 10_000) == []
    assert not decoder.started
    assert decoder.feed(b'last words\n\x1e{"type":"greeting"}\n') == [Message({"type": "greeting"})]
    assert decoder.started
    assert len(decoder.noise) == 4096
    assert decoder.noise.endswith(b"...last words\n")


@pytest.mark.parametrize(
    "line",
    [
        b"Traceback (most recent call last):",
        b"[]",
        b'{"kind":1}',
        b'{"type":1}',
        b"\xff\xfe",
        b'{"type":"a","bytes":-1}',
        b'{"type":"a","bytes":true}',
        b'{"type":"a","bytes":"9"}',
        b'{"type":"a","bytes":999999999999}',
    ],
)
def test_what_is_no_frame_is_refused(line: bytes) -> None:
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
