"""Events byte by byte: which numbers of them are scalars, and what is no event at all."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.metrics.events import Damaged, decode
from tests.event_files import event, number, piece, real, simple, start, summary, tensor, varint
from tests.fuzz import cases

TENSORS = {
    "float in tensor_content": number(1, 1) + piece(4, struct.pack("<f", 2.5)),
    "double in tensor_content": number(1, 2) + piece(4, struct.pack("<d", 2.5)),
    "half in tensor_content": number(1, 19) + piece(4, struct.pack("<e", 2.5)),
    "bfloat16 in tensor_content": number(1, 14) + piece(4, b"\x20\x40"),
    "float_val": number(1, 1) + real(5, 2.5),
    "packed float_val": number(1, 1) + piece(5, struct.pack("<f", 2.5)),
    "packed double_val": number(1, 2) + piece(6, struct.pack("<d", 2.5)),
    "half_val": number(1, 19) + number(13, 0x4100),
    "bfloat16 in half_val": number(1, 14) + piece(13, varint(0x4020)),
    "one element": number(1, 1) + piece(2, piece(2, number(1, 1))) + real(5, 2.5),
}
WHOLE = {
    "int32": number(1, 3) + number(7, -7),
    "int64": number(1, 9) + piece(10, varint(-7)),
    "int64 in tensor_content": number(1, 9) + piece(4, struct.pack("<q", -7)),
}


def scalars(*fields: bytes, known: tuple[str, ...] = ()) -> list[tuple[str, float]]:
    return decode(event(7, *fields), known).scalars


def test_an_event_has_a_step_and_a_time() -> None:
    found = decode(event(7, wall=12.5), ())
    assert (found.step, found.wall, found.starts, found.scalars) == (7, 12.5, False, [])


def test_simple_values_are_scalars() -> None:
    assert scalars(summary(simple("loss", 0.5), simple("lr", 0.0))) == [("loss", 0.5), ("lr", 0.0)]


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_one_number_are_scalars(name: str) -> None:
    assert scalars(summary(tensor("loss", TENSORS[name]))) == [("loss", 2.5)]


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_keep_their_sign(name: str) -> None:
    assert scalars(summary(tensor("loss", WHOLE[name]))) == [("loss", -7.0)]


def test_a_tensor_without_a_value_is_zero() -> None:
    assert scalars(summary(tensor("loss", number(1, 1)))) == [("loss", 0.0)]


def test_numbers_that_are_none_are_kept() -> None:
    (_, value), (_, other) = scalars(summary(simple("loss", math.nan), simple("loss", math.inf)))
    assert (math.isnan(value), other) == (True, math.inf)


def test_tensors_of_other_plugins_and_of_several_numbers_are_no_scalars() -> None:
    several = number(1, 1) + piece(2, piece(2, number(1, 2))) + piece(5, struct.pack("<ff", 1, 2))
    text = number(1, 7) + piece(8, b"hello")
    one = TENSORS["float_val"]
    assert scalars(summary(tensor("a", one, "histograms"), tensor("b", several), tensor("c", text))) == []


def test_a_tensor_whose_metadata_came_before_is_known_by_its_tag() -> None:
    message = summary(tensor("loss", TENSORS["float_val"], None))
    assert scalars(message) == []
    assert scalars(message, known=("loss",)) == [("loss", 2.5)]


def test_the_data_class_alone_makes_a_scalar() -> None:
    value = piece(1, b"loss") + piece(9, number(4, 1)) + piece(8, TENSORS["float_val"])
    assert scalars(summary(value)) == [("loss", 2.5)]


def test_only_a_session_that_starts_is_a_start() -> None:
    assert decode(start(40), ()).starts
    assert not decode(event(40, piece(7, number(1, 2))), ()).starts


def test_a_tag_that_is_too_long_is_passed_over() -> None:
    assert scalars(summary(simple("x" * 1001, 1.0), simple("loss", 1.0))) == [("loss", 1.0)]


@pytest.mark.parametrize(
    "data",
    [b"\x0b", b"\x12\xff", varint(5 << 3 | 2) + varint(100) + b"x", b"\x80" * 20, number(5, 3) + b"\x09\x01"],
    ids=["a group", "no length", "beyond the end", "a long number", "half a double"],
)
def test_what_is_no_event_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode(data, ())


@cases
@given(st.binary(max_size=300))
def test_any_bytes_are_an_event_or_damaged(data: bytes) -> None:
    for given_bytes in (data, event(1, summary(data)), event(1, summary(tensor("t", data))), event(1, piece(5, data))):
        try:
            found = decode(given_bytes, ("t",))
        except Damaged:
            continue
        assert all(isinstance(tag, str) and isinstance(value, float) for tag, value in found.scalars)
