"""The checksum of TensorFlow's files: CRC-32C, masked (`tensorflow/core/lib/hash/crc32c.h`)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def masked_crc32c(data: bytes) -> int:
    """The checksum as TensorFlow stores it."""
    crc = 0xFFFFFFFF
    table = _CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def crc_table() -> List[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)  # Castagnoli, reflected
        table.append(number)
    return table


_CRC_TABLE = crc_table()
