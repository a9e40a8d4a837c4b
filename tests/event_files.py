"""Event files as TensorBoard's writers make them, with the standard library alone: it is copied to trainers, too."""

from __future__ import annotations

import struct
import time


def varint(value: int) -> bytes:
    value += (value < 0) << 64
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def piece(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def real(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def event(step: int, *fields: bytes, wall: float | None = None) -> bytes:
    return double(1, time.time() if wall is None else wall) + number(2, step) + b"".join(fields)


def summary(*values: bytes) -> bytes:
    return piece(5, b"".join(piece(1, value) for value in values))


def simple(tag: str, value: float) -> bytes:
    """A scalar as TF1 writes it."""
    return piece(1, tag.encode()) + real(2, value)


def tensor(tag: str, message: bytes, plugin: str | None = "scalars") -> bytes:
    """A scalar as TF2 writes it; `message`: a TensorProto."""
    metadata = piece(9, piece(1, piece(1, plugin.encode()))) if plugin is not None else b""
    return piece(1, tag.encode()) + metadata + piece(8, message)


def floats(value: float) -> bytes:
    return number(1, 1) + piece(4, struct.pack("<f", value)) + piece(2, b"")


def start(step: int, wall: float | None = None) -> bytes:
    """SessionLog.START, as TF1's hooks write when training begins or goes on."""
    return event(step, piece(7, number(1, 1)), wall=wall)


def scalar(step: int, tag: str, value: float, wall: float | None = None) -> bytes:
    return record(event(step, summary(simple(tag, value)), wall=wall))


def record(data: bytes) -> bytes:
    size = struct.pack("<Q", len(data))
    return size + struct.pack("<I", masked(size)) + data + struct.pack("<I", masked(data))


def masked(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _row(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_TABLE = [_row(number) for number in range(256)]
