"""LevelDB's table and protocol buffers, byte by byte: what is read, and what is refused and why."""

from __future__ import annotations

import struct

import pytest

from dtctl.agent.checkpoints import tensor_bundle
from dtctl.agent.checkpoints.tensor_bundle import Damaged, entries, fields
from dtctl.agent.host import crc32c, protobuf
from dtctl.agent.host.crc32c import masked_crc32c
from tests.agent.checkpoints import tables


def read(table: bytes) -> list[tuple[bytes, bytes]]:
    return list(entries(table))


def refused(table: bytes) -> str:
    with pytest.raises(Damaged) as damaged:
        read(table)
    return str(damaged.value)


def refused_message(message: bytes) -> str:
    with pytest.raises(Damaged) as damaged:
        fields(message)
    return str(damaged.value)


def one(*rows: bytes, restarts: int = 1) -> bytes:
    return tables.table(tables.block(rows, restarts))


def row(shared: int, key: bytes, value: bytes) -> bytes:
    return tables.entry(key, value, shared)


def test_the_checksum_is_masked_as_tensorflow_masks_it() -> None:
    assert masked_crc32c(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_the_rows_of_the_lowest_and_the_highest_bit_are_those_of_castagnolis_polynomial() -> None:
    table = crc32c.crc_table()
    assert (table[1], table[0x80]) == (0xF26B8303, 0x82F63B78)


def test_keys_of_several_blocks_come_in_order_with_what_they_share() -> None:
    table = tables.table(
        tables.block([row(0, b"able", b"1"), row(2, b"x", b"22"), row(3, b"y", b"")]),
        tables.block([row(0, b"b", b"3")]),
    )
    assert read(table) == [(b"able", b"1"), (b"abx", b"22"), (b"abxy", b""), (b"b", b"3")]


def test_a_table_without_blocks_has_no_entries() -> None:
    assert read(tables.table()) == []


def test_the_shortest_file_that_may_be_a_table_is_its_footer() -> None:
    footer = bytes(40) + tables.MAGIC
    assert "cut short, or is not" in refused(footer[1:])
    assert "cut short, or is not" in refused(footer[:-1] + b"\0")
    assert refused(footer) == "the index does not match its checksum"


def test_an_index_block_may_lie_against_the_footer_and_no_further() -> None:
    empty = tables.block([])
    table = tables.table()
    assert table[: len(empty)] == empty

    def placed(size: int) -> bytes:
        return table[:-48] + (tables.handle(0, 0) + tables.handle(0, size)).ljust(40, b"\0") + tables.MAGIC

    assert read(placed(len(empty))) == []
    assert refused(placed(len(table) - 5)) == "the index does not match its checksum"
    assert refused(placed(len(table) - 4)) == "the index is cut short"


@pytest.mark.parametrize("second", [b"a", b"b"])
def test_keys_that_do_not_rise_are_refused(second: bytes) -> None:
    assert refused(one(row(0, b"b", b""), row(0, second, b""))) == "the index is not in order"


def test_blocks_may_touch_and_not_overlap() -> None:
    first, second = tables.block([row(0, b"a", b"")]), tables.block([row(0, b"b", b"")])
    both = [tables.handle(0, len(first)), tables.handle(len(first) + 5, len(second))]
    assert read(tables.table(first, second, handles=both)) == [(b"a", b""), (b"b", b"")]
    twice = [both[1], tables.handle(len(first) + 4, len(second))]
    assert refused(tables.table(first, second, handles=twice)) == "the index has blocks that overlap"
    again = [both[0], both[0]]
    assert refused(tables.table(first, second, handles=again)) == "the index has blocks that overlap"
    later = [both[0], tables.handle(len(first) + 4, len(second))]
    assert refused(tables.table(first, second, handles=later)) == "the index has blocks that overlap"


def test_a_compressed_block_is_said_to_be_one() -> None:
    table = bytearray(one(row(0, b"a", b"")))
    content = tables.block([row(0, b"a", b"")])
    table[len(content)] = 1
    struct.pack_into("<I", table, len(content) + 1, masked_crc32c(content + b"\1"))
    assert refused(bytes(table)) == "the index is compressed, which dtctl cannot read"


def test_entries_end_where_the_restarts_begin() -> None:
    assert read(one(restarts=1)) == []
    assert refused(one(restarts=2)) == "the index has a block with more restarts than it has room for"
    # One restart's four bytes and their number: whatever is before them is an entry.
    assert read(one(row(0, b"a", b"1234"))) == [(b"a", b"1234")]
    assert refused(one(row(0, b"a", b"123"), restarts=2)) == "the index ends within an entry"


@pytest.mark.parametrize("place", [b"", tables.handle(0, 2), tables.handle(0, 3)])
def test_a_place_that_is_none_and_a_block_without_its_end_are_refused(place: bytes) -> None:
    first = b"\0\0" if place == tables.handle(0, 2) else b"\0\0\0"
    assert refused(tables.table(first, handles=[place])) == "the index ends within an entry"


def test_an_entry_may_end_where_its_block_does_and_not_after() -> None:
    whole = tables.varint(0) + tables.varint(1) + tables.varint(3) + b"a" + b"123"
    assert read(one(whole)) == [(b"a", b"123")]
    assert refused(one(whole[:-1])) == "the index ends within an entry"


def test_a_key_may_share_all_of_the_one_before_it_and_no_more() -> None:
    assert read(one(row(0, b"ab", b""), row(2, b"c", b"")))[1][0] == b"abc"
    assert refused(one(row(0, b"ab", b""), row(3, b"c", b""))) == "the index ends within an entry"


def test_the_longest_key_is_read_and_a_longer_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_bundle, "_LONGEST_KEY", 5)
    assert read(one(row(0, b"abcd", b""), row(4, b"e", b"")))[1][0] == b"abcde"
    assert refused(one(row(0, b"abcd", b""), row(4, b"ef", b""))) == "the index ends within an entry"


def test_who_reads_is_asked_for_each_block_and_now_and_then_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_bundle, "_BETWEEN_CHECKS", 2)
    asked: list[int] = []
    table = one(*(row(0, b"%d" % number, b"") for number in range(5)))
    seen = [len(asked) for _ in entries(table, lambda: asked.append(1))]
    assert seen == [2, 2, 3, 3, 4]  # the index block, the block, and after each second entry
    assert len(asked) == 4


def test_fields_of_every_kind_are_read_in_their_order() -> None:
    message = (
        tables.varint(1 << 3) + tables.varint(300)
        + tables.varint(2 << 3 | 2) + tables.varint(3) + b"abc"
        + tables.varint(3 << 3 | 5) + struct.pack("<I", 7)
        + tables.varint(4 << 3 | 1) + struct.pack("<Q", 1 << 40)
        + tables.varint(1 << 3) + tables.varint(5)
    )  # fmt: skip
    assert fields(message) == {1: [300, 5], 2: [b"abc"], 3: [7], 4: [1 << 40]}
    assert fields(b"") == {}


def test_a_field_of_an_unknown_kind_is_refused() -> None:
    assert refused_message(tables.varint(1 << 3 | 3)) == "an entry of the index is not a protocol buffer"


@pytest.mark.parametrize("cut", [b"\x08", b"\x0d\0\0\0", b"\x09\0\0\0\0\0\0\0"])
def test_a_field_that_is_cut_short_is_refused(cut: bytes) -> None:
    assert refused_message(cut) == "an entry of the index ends within a field"


def test_so_many_fields_are_read_and_not_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "_MOST_FIELDS", 2)
    field = tables.message({1: 1})
    assert fields(field * 2) == {1: [1, 1]}
    assert refused_message(field * 3) == "an entry of the index has too many fields"


def test_a_number_has_at_most_ten_bytes() -> None:
    largest = (1 << 64) - 1
    assert fields(tables.message({1: largest})) == {1: [largest]}
    assert refused_message(tables.message({1: 1 << 70})) == "an entry of the index has a number that is too long"
