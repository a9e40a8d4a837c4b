"""Frames as bytes, the controller's side."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.transport.seam import Message
from dtctl.transport.wire import LINE_LIMIT, Decoder, WireError, encode
from tests.fuzz import cases


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
        b'{"type":"output","bytes":2000000}',
        b'{"type":"a","time":NaN}',
        b'{"type":"a","time":1e999}',
        b'{"type":"a","n":' + b"9" * 5000 + b"}",
        b'{"type":"a","n":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
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
FRAMES = st.tuples(st.dictionaries(NAMES, VALUES, max_size=3), st.text(max_size=10), st.binary(max_size=200))


@cases
@given(st.lists(FRAMES, max_size=4), st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_whatever_is_sent_comes_back_however_it_is_cut(
    frames: list[tuple[dict[str, Any], str, bytes]], cuts: list[int]
) -> None:
    sent = [({"type": kind, **fields}, payload) for fields, kind, payload in frames]
    stream = b"".join(encode(fields, payload) for fields, payload in sent)
    decoder, at = started(), 0
    found: list[Message] = []
    while at < len(stream):
        step = cuts[len(found) % len(cuts)]
        found += decoder.feed(stream[at : at + step])
        at += step
    told = [({**fields, "bytes": len(payload)} if payload else fields, payload) for fields, payload in sent]
    assert [(message.fields, message.payload) for message in found] == told
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


def test_noise_without_an_end_takes_no_memory() -> None:
    decoder, piece = Decoder(), b"." * (1 << 20)
    tracemalloc.start()
    try:
        for _ in range(64):
            decoder.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
