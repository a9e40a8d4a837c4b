"""The encodings of TensorFlow's files: protocol buffers, field by field, and the checksum CRC-32C, masked.

Python has no such checksum (`tensorflow/core/lib/hash/crc32c.h`). Long data is processed as rows of `_STEPS` bytes,
whose checksums are computed in parallel: each column of all rows is one number, looked up by `bytes.translate`. That is
about ten times as fast as byte by byte. The registers of the rows can be combined because the checksum is linear: one
register is advanced over a whole row by four tables.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

    Span = Tuple[int, int]
    Field = Tuple[int, int, "int | Span"]

_STEPS = 256
_PIECE = 1024 * _STEPS
_LEAST = 64 * _STEPS
"""Fewer bytes are not worth it."""


def crc32c(data: bytes, before: int = 0) -> int:
    """The checksum of what had the checksum `before`, and then `data`."""
    crc = before ^ 0xFFFFFFFF
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        if len(piece) < _LEAST:
            crc = _one_by_one(crc, piece)
        else:
            rows = len(piece) - len(piece) % _STEPS
            crc = _one_by_one(_side_by_side(crc, piece[:rows]), piece[rows:])
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """A checksum as TensorFlow stores it."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    return masked(crc32c(data))


def _one_by_one(crc: int, data: bytes) -> int:
    table = _CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


def _side_by_side(crc: int, data: bytes) -> int:
    if not _over_a_row:
        _over_a_row.extend(_tables_over_a_row())
    first, second, third, fourth = _over_a_row
    for register in _of_rows(data):
        moved = first[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ fourth[crc >> 24]
        crc = moved ^ register
    return crc


def _of_rows(data: bytes) -> Iterator[int]:
    """The register of each row, from nothing."""
    rows = len(data) // _STEPS
    number = int.from_bytes
    lowest, low, high, highest = _PLANES
    first = second = third = fourth = 0  # the four bytes of all registers
    for column in range(_STEPS):
        at = (first ^ number(data[column::_STEPS], "little")).to_bytes(rows, "little")
        first = number(at.translate(lowest), "little") ^ second
        second = number(at.translate(low), "little") ^ third
        third = number(at.translate(high), "little") ^ fourth
        fourth = number(at.translate(highest), "little")
    planes = [plane.to_bytes(rows, "little") for plane in (first, second, third, fourth)]
    for a, b, c, d in zip(*planes):
        yield a | b << 8 | c << 16 | d << 24


def _tables_over_a_row() -> List[List[int]]:
    """The tables of a register after a row of zeros, for each value of each byte."""
    zeros = bytes(_STEPS)
    alone = [_one_by_one(1 << bit, zeros) for bit in range(32)]
    tables = []
    for place in range(0, 32, 8):
        table = [0] * 256
        for value in range(1, 256):
            lowest = value & -value
            table[value] = table[value ^ lowest] ^ alone[place + lowest.bit_length() - 1]
        tables.append(table)
    return tables


def crc_table() -> List[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)  # Castagnoli, reflected
        table.append(number)
    return table


_CRC_TABLE = crc_table()
_PLANES = [bytes(value >> place & 255 for value in _CRC_TABLE) for place in range(0, 32, 8)]
"""The table, one byte of each value at a time."""
_over_a_row: List[List[int]] = []
"""Made when they are first needed."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 200_000
"""The most fields of a message."""


class Malformed(Exception):
    """The message is malformed; the text names the problem."""


def fields(data: bytes, span: Span, most: int = MOST_FIELDS) -> Iterator[Field]:
    """Number, wire type, and value of each field: a number, or the span of its bytes.

    Raises Malformed, also for a message of more than `most` fields.
    """
    position, end = span
    count = 0
    while position < end:
        count += 1
        if count > most:
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
