"""Reads the `.index` file of a TensorFlow checkpoint: a sorted table of keys and small protocol buffers.

The formats: `tensorflow/core/lib/io/table_format.txt` (LevelDB's table), `tensorflow/core/lib/hash/crc32c.h` (masked
checksums), `tensorflow/core/protobuf/tensor_bundle.proto` (header and entries).
"""

from __future__ import annotations

import struct

from ..host.crc32c import masked_crc32c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Tuple

_MAGIC = 0xDB4775248B80FB57
_FOOTER_SIZE = 48
_TRAILER_SIZE = 5  # type of compression, checksum
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_FIELDS = 100_000
_LONGEST_KEY = 64 * 1024
_BETWEEN_CHECKS = 1000


class Damaged(Exception):
    """The file is not what its own checksums and lengths say, or is of a kind that cannot be read here."""


def entries(table: bytes, check: Callable[[], None] = lambda: None) -> Iterator[Tuple[bytes, bytes]]:
    """Keys and values of a whole table in order. Raises Damaged, and what `check` does, which is called now and then.

    The work is at most in proportion to the size: every block is read once, and none of them lies in another.
    """
    if len(table) < _FOOTER_SIZE or struct.unpack("<Q", table[-8:])[0] != _MAGIC:
        raise Damaged("the index is cut short, or is not an index")
    try:
        footer = table[-_FOOTER_SIZE:]
        _, position = _handle(footer, 0)  # of the metaindex, which checkpoints do not use
        index_handle, _ = _handle(footer, position)
        last, end = None, 0
        for _, value in _block(table, index_handle, check):
            handle, _ = _handle(value, 0)
            if handle[0] < end:
                raise Damaged("the index has blocks that overlap")
            end = handle[0] + handle[1] + _TRAILER_SIZE
            for key, value in _block(table, handle, check):
                if last is not None and key <= last:
                    raise Damaged("the index is not in order")
                last = key
                yield key, value
    except (IndexError, struct.error):
        raise Damaged("the index ends within an entry") from None


def fields(message: bytes) -> Dict[int, List[int | bytes]]:
    """A protocol buffer as the values of each field number. Raises Damaged."""
    found: Dict[int, List[int | bytes]] = {}
    position = count = 0
    try:
        while position < len(message):
            count += 1
            if count > _MOST_FIELDS:
                raise Damaged("an entry of the index has too many fields")
            tag, position = _varint(message, position)
            value: int | bytes
            if tag & 7 == _VARINT:
                value, position = _varint(message, position)
            elif tag & 7 == _BYTES:
                size, position = _varint(message, position)
                value, position = message[position : position + size], position + size
            elif tag & 7 == _FIXED32:
                value, position = struct.unpack_from("<I", message, position)[0], position + 4
            elif tag & 7 == _FIXED64:
                value, position = struct.unpack_from("<Q", message, position)[0], position + 8
            else:
                raise Damaged("an entry of the index is not a protocol buffer")
            found.setdefault(tag >> 3, []).append(value)
    except (IndexError, struct.error):
        raise Damaged("an entry of the index is cut short") from None
    return found


def _block(table: bytes, handle: Tuple[int, int], check: Callable[[], None]) -> Iterator[Tuple[bytes, bytes]]:
    offset, size = handle
    end = offset + size
    if end + _TRAILER_SIZE > len(table):
        raise Damaged("the index is cut short")
    check()
    if struct.unpack_from("<I", table, end + 1)[0] != masked_crc32c(table[offset : end + 1]):
        raise Damaged("the index does not match its checksum")
    if table[end] != 0:
        raise Damaged("the index is compressed, which dtctl cannot read")
    content = table[offset:end]
    restarts = struct.unpack_from("<I", content, len(content) - 4)[0]
    limit = len(content) - 4 * (restarts + 1)
    if limit < 0:
        raise Damaged("the index has a block with more restarts than it has room for")
    position, key, left = 0, b"", _BETWEEN_CHECKS
    while position < limit:
        shared, position = _varint(content, position)
        unshared, position = _varint(content, position)
        size, position = _varint(content, position)
        if shared > len(key) or position + unshared + size > limit or shared + unshared > _LONGEST_KEY:
            raise Damaged("the index ends within an entry")
        key = key[:shared] + content[position : position + unshared]
        position += unshared
        yield key, content[position : position + size]
        position += size
        left -= 1
        if not left:
            check()
            left = _BETWEEN_CHECKS


def _handle(data: bytes, position: int) -> Tuple[Tuple[int, int], int]:
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


def _varint(data: bytes, position: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise Damaged("a number in the index is too long")
