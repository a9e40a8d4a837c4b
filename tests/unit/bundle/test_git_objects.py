"""Objects of repositories that are made to take memory, time or descriptors."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from dtctl.bundle.git_objects import _MOST_PACKS, Objects, Unreadable

ONE, TWO = "12" + "ab" * 19, "34" + "cd" * 19
BLOB, REF_DELTA = 3, 7


def entry(kind: int, content: bytes, base: str = "") -> bytes:
    """An entry of a pack."""
    size = len(content)
    head = [kind << 4 | size & 15]
    while size := (size >> 4 if len(head) == 1 else size >> 7):
        head[-1] |= 0x80
        head.append(size & 0x7F)
    return bytes(head) + bytes.fromhex(base) + zlib.compress(content)


def pack(objects: Path, number: int, entries: Mapping[str, bytes]) -> None:
    """A pack and its index of version 2."""
    directory = objects / "pack"
    directory.mkdir(exist_ok=True)
    data, names, offsets = b"PACK" + struct.pack(">II", 2, len(entries)), sorted(entries), []
    for name in names:
        offsets.append(len(data))
        data += entries[name]
    ids = [bytes.fromhex(name) for name in names]
    fan = [sum(one[0] <= first for one in ids) for first in range(256)]
    index = b"\xfftOc" + struct.pack(">I256I", 2, *fan) + b"".join(ids) + bytes(4 * len(ids))
    (directory / f"pack-{number:040x}.pack").write_bytes(data + bytes(20))
    (directory / f"pack-{number:040x}.idx").write_bytes(index + struct.pack(f">{len(ids)}I", *offsets) + bytes(40))


def delta(source: int, size: int, code: bytes) -> bytes:
    def length(value: int) -> bytes:
        made = bytearray()
        while value > 0x7F:
            made.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*made, value])

    return length(source) + length(size) + code


def test_a_delta_of_another_object_is_applied(tmp_path: Path) -> None:
    pack(tmp_path, 1, {ONE: entry(REF_DELTA, delta(5, 8, b"\x90\x05\x03abc"), TWO)})
    pack(tmp_path, 2, {TWO: entry(BLOB, b"hello")})
    with Objects(tmp_path) as objects:
        assert objects.read(ONE, "blob", 100) == b"helloabc"


@pytest.mark.parametrize("packs", [1, 2])
def test_deltas_in_a_circle_are_refused_at_once(packs: int, tmp_path: Path) -> None:
    large = delta(5, 5, b"x" * (1 << 20))
    if packs == 1:
        pack(tmp_path, 1, {ONE: entry(REF_DELTA, large, ONE)})
    else:
        pack(tmp_path, 1, {ONE: entry(REF_DELTA, large, TWO)})
        pack(tmp_path, 2, {TWO: entry(REF_DELTA, large, ONE)})
    began = time.process_time()
    with Objects(tmp_path) as objects, pytest.raises(Unreadable, match="too many deltas"):
        objects.read(ONE, "blob", 1 << 25)
    assert time.process_time() - began < 2


def test_a_long_chain_of_packs_is_no_recursion(tmp_path: Path) -> None:
    names = [f"{number:040x}" for number in range(150)]
    for number, name in enumerate(names[:-1]):
        pack(tmp_path, number, {name: entry(REF_DELTA, delta(1, 1, b"\x90\x01"), names[number + 1])})
    pack(tmp_path, 149, {names[-1]: entry(BLOB, b"x")})
    with Objects(tmp_path) as objects:
        assert objects.read(names[0], "blob", 100) == b"x"


def test_deltas_are_limited_in_sum(tmp_path: Path) -> None:
    names = [f"{number:040x}" for number in range(8)]
    large = delta(1, 1, b"x" * 900_000)
    entries = {name: entry(REF_DELTA, large, base) for name, base in pairwise(names)}
    pack(tmp_path, 1, {**entries, names[-1]: entry(BLOB, b"x")})
    with Objects(tmp_path) as objects, pytest.raises(Unreadable, match="too large"):
        objects.read(names[0], "blob", 1 << 20)


def test_reading_ends_with_its_time(tmp_path: Path) -> None:
    pack(tmp_path, 1, {ONE: entry(BLOB, b"x")})
    with Objects(tmp_path, time.monotonic() - 1) as objects, pytest.raises(Unreadable, match="takes too long"):
        objects.read(ONE, "blob", 100)


def test_more_packs_than_the_limit_are_not_opened(tmp_path: Path) -> None:
    for number in range(_MOST_PACKS + 1):
        pack(tmp_path, number, {ONE: entry(BLOB, b"x")})
    with Objects(tmp_path) as objects:
        with pytest.raises(Unreadable, match="more than 200 packs"):
            objects.read(ONE, "blob", 100)
        assert objects._opened == []


@pytest.mark.parametrize(
    "item",
    [
        *(b"100644 " + name for name in (b"", b".", b"..", b"a/b", b".git", b".GIT", b"x" * 5000)),
        *(mode + b" a" for mode in (b"-100644", b"0", b"7777777", b"8", b"")),
    ],
)
def test_a_tree_with_an_invalid_name_or_mode_is_damaged(item: bytes, tmp_path: Path) -> None:
    content = item + b"\0" + bytes(20)
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / ("ab" * 19)).write_bytes(zlib.compress(b"tree %d\0" % len(content) + content))
    with Objects(tmp_path) as objects, pytest.raises(Unreadable, match="damaged"):
        objects.tree(ONE)


def test_a_tree_that_is_cut_off_is_damaged(tmp_path: Path) -> None:
    content = b"100644 a\0" + bytes(19)
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / ("ab" * 19)).write_bytes(zlib.compress(b"tree %d\0" % len(content) + content))
    with Objects(tmp_path) as objects, pytest.raises(Unreadable, match="damaged"):
        objects.tree(ONE)
