"""The checksum of TensorFlow's files, side by side and byte after byte."""

from __future__ import annotations

import random

import pytest

from dtctl.agent.host.crc32c import crc32c, crc_table, masked, masked_crc32c


def plainly(data: bytes) -> int:
    """As the algorithm stands in RFC 3720, B.4."""
    crc, table = 0xFFFFFFFF, crc_table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)],
)
def test_known_checksums(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 16_385, 262_143, 262_144, 262_145, 300_000])
def test_many_bytes_at_once_have_the_checksum_of_one_after_the_other(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c(data) == plainly(data)


def test_a_checksum_goes_on_from_what_stood_before() -> None:
    data = random.Random(1).randbytes(50_000)
    assert crc32c(data[20_000:], crc32c(data[:20_000])) == crc32c(data)


def test_the_mask_is_tensorflows() -> None:
    assert masked(crc32c(b"foo")) == masked_crc32c(b"foo") != crc32c(b"foo")
    assert masked(0) == 0xA282EAD8
