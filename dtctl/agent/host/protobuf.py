"""Protocol buffers, field by field, of files that others may have written."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Tuple

    Span = Tuple[int, int]
    Field = Tuple[int, int, "int | Span"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MOST_FIELDS = 200_000


class Malformed(Exception):
    """The text says what is wrong with the message."""


def fields(data: bytes, span: Span) -> Iterator[Field]:
    """Number, wire type, and value of each field: a number, or where its bytes lie. Raises Malformed."""
    position, end = span
    count = 0
    while position < end:
        count += 1
        if count > _MOST_FIELDS:
            raise Malformed("has too many fields")
        tag, position = varint(data, position, end)
        kind = tag & 7
        value: int | Span
        if kind == VARINT:
            value, position = varint(data, position, end)
        elif kind == BYTES:
            size, position = varint(data, position, end)
            value = (position, position + size)
            position += size
        elif kind in (FIXED32, FIXED64):
            begin, position = position, position + (4 if kind == FIXED32 else 8)
            value = int.from_bytes(data[begin:position], "little")
        else:
            raise Malformed("is not a protocol buffer")
        if position > end:
            raise Malformed("ends within a field")
        yield tag >> 3, kind, value


def varint(data: bytes, position: int, end: int) -> Tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:
            raise Malformed("has a number that is too long")
    raise Malformed("ends within a field")
