"""Index files as TensorFlow would write them, and as it never would: blocks with right checksums around any content."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from dtctl.agent.host.encodings import masked_crc32c
from tests.event_files import varint

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)


def message(fields: Mapping[int, int]) -> bytes:
    """A protocol buffer of numbers."""
    return b"".join(varint(field << 3) + varint(value) for field, value in fields.items())


def entry(key: bytes, value: bytes, shared: int = 0) -> bytes:
    return varint(shared) + varint(len(key)) + varint(len(value)) + key + value


def block(entries: Iterable[bytes], restarts: int = 1) -> bytes:
    return b"".join(entries) + struct.pack("<II", 0, restarts)


def handle(offset: int, size: int) -> bytes:
    return varint(offset) + varint(size)


def table(*blocks: bytes, handles: Iterable[bytes] | None = None) -> bytes:
    """The blocks one after the other; `handles`: what the index block says of where they are."""
    data = b""
    places = []
    for one in blocks:
        places.append(handle(len(data), len(one)))
        data += sealed(one)
    listed = places if handles is None else handles
    index = block(entry(b"k%03d" % number, place) for number, place in enumerate(listed))
    where = handle(len(data), len(index))
    return data + sealed(index) + (handle(0, 0) + where).ljust(40, b"\0") + MAGIC


def sealed(content: bytes) -> bytes:
    return content + b"\0" + struct.pack("<I", masked_crc32c(content + b"\0"))


def index(shards: int, *entries: bytes) -> bytes:
    return table(block([entry(b"", message({1: shards})), *entries]))
