"""TensorFlow's checkpoints byte by byte: the index, its shards and their checksums, what is read, and what is
refused.
"""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import tensor_bundle
from dtctl.agent.checkpoints.tensor_bundle import Damaged, Index, entries, fields, file_size, number_in
from dtctl.agent.host import encodings
from dtctl.agent.host.encodings import crc32c, crc_table, masked_crc32c
from tests.agent.checkpoints import tables
from tests.event_files import varint

INT32, INT64, FLOAT = 3, 9, 1
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
LARGEST = (1 << 63) - 1


class Bundle:
    """A checkpoint of one or two shards in a directory; tensors are written one after the other."""

    def __init__(self, directory: Path, name: str = "model.ckpt-7", *, shards: int = 1, order: str = "<") -> None:
        self.prefix = str(directory / name)
        self._shards = [b""] * shards
        self._order = order
        self._rows: dict[str, dict[int, int]] = {}

    def tensor(self, name: str, value: int, *, dtype: int = INT64, shard: int = 0, **wrong: int) -> Bundle:
        data = struct.pack(self._order + {INT32: "i"}.get(dtype, "q"), value)
        place = {1: dtype, 3: shard, 4: len(self._shards[shard]), 5: len(data), 6: masked_crc32c(data)}
        place |= {{"crc": 6, "size": 5, "in_shard": 3, "offset": 4}[key]: value for key, value in wrong.items()}
        self._rows[name] = place
        self._shards[shard] += data
        return self

    def index(self) -> Index:
        header = {1: len(self._shards), 2: int(self._order == ">")}
        rows = [tables.entry(name.encode(), self._message(self._rows[name])) for name in sorted(self._rows)]
        content = tables.table(tables.block([tables.entry(b"", tables.message(header)), *rows]))
        Path(f"{self.prefix}.index").write_bytes(content)
        for number, data in enumerate(self._shards):
            self.shard(number).write_bytes(data)
        return Index(self.prefix)

    def shard(self, number: int) -> Path:
        return Path(f"{self.prefix}.data-{number:05d}-of-{len(self._shards):05d}")

    @staticmethod
    def _message(place: dict[int, int]) -> bytes:
        checksum = varint(6 << 3 | 5) + struct.pack("<I", place[6])
        return tables.message({key: value for key, value in place.items() if key != 6}) + checksum


def damaged(directory: Path, *entries: bytes) -> str:
    (directory / "bad.index").write_bytes(tables.table(tables.block(entries)))
    with pytest.raises(Damaged) as found:
        Index(str(directory / "bad"))
    return str(found.value)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", [INT32, INT64])
def test_a_step_is_read_in_both_widths_and_both_byte_orders(tmp_path: Path, dtype: int, order: str) -> None:
    bundle = Bundle(tmp_path, order=order).tensor("global_step", 1234, dtype=dtype)
    assert bundle.index().step() == 1234
    assert bundle.index().problem() is None


def test_step_zero_is_a_step_and_a_negative_one_is_none(tmp_path: Path) -> None:
    assert Bundle(tmp_path).tensor("global_step", 0).index().step() == 0
    assert Bundle(tmp_path).tensor("global_step", -1).index().step() == 7


@pytest.mark.parametrize("wrong", [{"crc": 1}, {"size": 4}, {"dtype": FLOAT}, {"offset": 8}])
def test_non_integer_step_tensor_is_ignored(tmp_path: Path, wrong: dict[str, int]) -> None:
    assert Bundle(tmp_path).tensor("global_step", 1234, **wrong).index().step() == 7


def test_a_step_whose_shard_is_gone_is_that_of_the_name(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path).tensor("global_step", 1234)
    index = bundle.index()
    bundle.shard(0).unlink()
    assert index.step() == 7


def test_reading_a_step_leaves_no_file_open(tmp_path: Path) -> None:
    index = Bundle(tmp_path).tensor("global_step", 1234).index()
    before = len(list(Path("/proc/self/fd").iterdir()))
    index.step()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("names", "best"),
    [
        (["global_step", "a/step" + SUFFIX], "global_step"),
        (["a/step" + SUFFIX, "a/train_step" + SUFFIX], "a/step" + SUFFIX),
        (["a/b/step" + SUFFIX, "z/step" + SUFFIX], "z/step" + SUFFIX),
        (["a/b/step" + SUFFIX, "z/iter" + SUFFIX], "a/b/step" + SUFFIX),
        (["step", "optimizer/iter" + SUFFIX], "optimizer/iter" + SUFFIX),
        (["scope/global_step", "optimizer/iter" + SUFFIX], "scope/global_step"),
    ],
)
def test_the_most_telling_variable_counts_then_the_least_deep(tmp_path: Path, names: list[str], best: str) -> None:
    bundle = Bundle(tmp_path)
    for name in names:
        bundle.tensor(name, 1000 + (name == best))
    assert bundle.index().step() == 1001


def test_a_plain_variable_is_a_step_only_by_its_full_name(tmp_path: Path) -> None:
    assert Bundle(tmp_path).tensor("step", 1234).tensor("my_global_step", 1234).index().step() == 7


def test_a_number_that_only_counts_the_checkpoints_is_no_step(tmp_path: Path) -> None:
    counter = "save_counter" + SUFFIX
    assert Bundle(tmp_path).tensor(counter, 7).index().step() is None
    assert Bundle(tmp_path).tensor(counter, 6).index().step() == 7
    assert Bundle(tmp_path, "last").tensor(counter, 7).index().step() is None


def test_only_so_many_variables_are_remembered_and_always_the_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_bundle, "_MOST_STEP_VARIABLES", 1)
    bundle = Bundle(tmp_path).tensor("a/b/step" + SUFFIX, 5).tensor("b/step" + SUFFIX, 6)
    assert bundle.tensor("save_counter" + SUFFIX, 7).index().step() == 5
    bundle = Bundle(tmp_path).tensor("a/step" + SUFFIX, 7, crc=1).tensor("save_counter" + SUFFIX, 7)
    assert bundle.index().step() is None


def test_check_is_called_for_each_shard_and_step(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, shards=2).tensor("global_step", 1234)
    bundle.index()
    asked: list[int] = []
    index = Index(bundle.prefix, lambda: asked.append(1))
    assert len(asked) == 2  # the index block and the one block of entries
    index.problem()
    assert len(asked) == 4
    index.step()
    assert len(asked) == 5


def test_shards_have_to_be_as_long_as_their_last_tensor_says(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, shards=2).tensor("a", 1).tensor("b", 2).tensor("c", 3, shard=1)
    index = bundle.index()
    assert index.problem() is None
    os.truncate(bundle.shard(1), 7)
    assert index.problem() == "model.ckpt-7.data-00001-of-00002 is cut short: it has 7 of 8 bytes"
    os.truncate(bundle.shard(0), 15)
    assert index.problem() == "model.ckpt-7.data-00000-of-00002 is cut short: it has 15 of 16 bytes"
    bundle.shard(0).unlink()
    assert index.problem() == "model.ckpt-7.data-00000-of-00002 is missing"


def test_the_longest_end_of_a_shard_counts_wherever_it_stands(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path).tensor("a", 1, offset=92).tensor("b", 2, offset=0)
    assert bundle.index().problem() == "model.ckpt-7.data-00000-of-00001 is cut short: it has 16 of 100 bytes"


def test_a_shard_that_holds_nothing_may_be_empty_and_not_missing(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, shards=2).tensor("a", 1)
    assert bundle.index().problem() is None
    bundle.shard(1).unlink()
    assert Index(bundle.prefix).problem() == "model.ckpt-7.data-00001-of-00002 is missing"


def test_a_tensor_in_a_shard_that_cannot_be_is_named_the_first_of_them(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, shards=2).tensor("a", 1, shard=1).tensor("b" * 300, 2, in_shard=2)
    index = bundle.tensor("c", 3, in_shard=9).index()
    assert index.problem() == f"{'b' * 200} lies in shard 2, and there are 2"


def test_a_step_in_a_shard_that_cannot_be_is_not_looked_for(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path).tensor("global_step", 1234, in_shard=1)
    (tmp_path / "model.ckpt-7.data-00001-of-00001").write_bytes(struct.pack("<q", 1234))
    assert bundle.index().step() == 7


def test_a_single_byte_that_is_missing_is_missed(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path).tensor("a", 1, size=1)
    index = bundle.index()
    os.truncate(bundle.shard(0), 0)
    assert index.problem() == "model.ckpt-7.data-00000-of-00001 is cut short: it has 0 of 1 bytes"


def test_a_shard_that_is_no_file_is_said_to_be_none(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path).tensor("a", 1)
    index = bundle.index()
    bundle.shard(0).unlink()
    bundle.shard(0).mkdir()
    assert index.problem() == "model.ckpt-7.data-00000-of-00001 is a directory"


def test_a_number_that_is_text_counts_as_zero(tmp_path: Path) -> None:
    text = varint(3 << 3 | 2) + varint(1) + b"9"
    (tmp_path / "odd.index").write_bytes(tables.index(1, tables.entry(b"a", text)))
    (tmp_path / "odd.data-00000-of-00001").touch()
    assert Index(str(tmp_path / "odd")).problem() is None


def test_a_tensor_may_end_with_the_largest_file_and_not_after_it(tmp_path: Path) -> None:
    index = Bundle(tmp_path).tensor("a", 1, offset=LARGEST - 8).index()
    assert index.problem() == f"model.ckpt-7.data-00000-of-00001 is cut short: it has 8 of {LARGEST} bytes"
    with pytest.raises(Damaged, match="beyond the end of any file"):
        Bundle(tmp_path).tensor("a", 1, offset=LARGEST - 7).index()


def test_an_index_needs_a_header_of_a_number_of_shards(tmp_path: Path) -> None:
    header = tables.message({1: 1})
    assert damaged(tmp_path) == "the index has no header"
    assert damaged(tmp_path, tables.entry(b"", b"")) == "the index has no header"
    assert damaged(tmp_path, tables.entry(b"a", header)) == "the index has no header"
    text = varint(1 << 3 | 2) + varint(1) + b"1"
    for none in (tables.message({2: 0}), tables.message({1: 0}), text):
        assert damaged(tmp_path, tables.entry(b"", none)) == "the index's header names no shards"


def test_no_more_shards_than_their_names_have_digits_for(tmp_path: Path) -> None:
    (tmp_path / "many.index").write_bytes(tables.index(99_999))
    assert Index(str(tmp_path / "many")).shards == 99_999
    problem = damaged(tmp_path, tables.entry(b"", tables.message({1: 100_000})))
    assert problem == "the index's header names 100000 shards, and 99999 are the most"


def test_minimal_header_means_one_shard_and_little_endian(tmp_path: Path) -> None:
    prefix = tmp_path / "plain"
    data = struct.pack("<q", 5)
    row = tables.message({1: INT64, 5: 8}) + varint(6 << 3 | 5) + struct.pack("<I", masked_crc32c(data))
    Path(f"{prefix}.index").write_bytes(tables.index(1, tables.entry(b"global_step", row)))
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
    index = Index(str(prefix))
    assert (index.problem(), index.step()) == (None, 5)


@pytest.mark.parametrize(
    ("prefix", "number"),
    [("/a/model.ckpt-7", 7), ("/a-9/model", None), ("/a/ckpt-7x", None), ("/a/m-" + "9" * 18, 10**18 - 1)],
)
def test_the_number_in_a_name_is_its_last_part(prefix: str, number: int | None) -> None:
    assert number_in(prefix) == number


def test_a_size_is_of_what_lies_there(tmp_path: Path) -> None:
    (tmp_path / "some").write_bytes(b"123")
    assert file_size(str(tmp_path / "some")) == 3
    assert file_size(str(tmp_path / "none")) is None


def test_each_tensor_that_lies_in_a_shard_is_passed_to_the_callback(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, shards=2).tensor("a", 1, shard=1).tensor("b", 2, in_shard=7).tensor("c", 3)
    bundle.index()
    reported: list[tuple[str, int, int]] = []
    Index(bundle.prefix, keep=lambda name, entry: reported.append((name, entry.shard, entry.size)))
    assert reported == [("a", 1, 8), ("c", 0, 8)]


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


def test_keys_of_several_blocks_come_in_order_with_what_they_share() -> None:
    table = tables.table(
        tables.block([row(0, b"able", b"1"), row(2, b"x", b"22"), row(3, b"y", b"")]),
        tables.block([row(0, b"b", b"3")]),
    )
    assert read(table) == [(b"able", b"1"), (b"abx", b"22"), (b"abxy", b""), (b"b", b"3")]


FOOTER = bytes(40) + tables.MAGIC
FIRST, SECOND = tables.block([row(0, b"a", b"")]), tables.block([row(0, b"b", b"")])
WHOLE = varint(0) + varint(1) + varint(3) + b"a" + b"123"


def two(*offsets: int) -> bytes:
    """Two blocks, said to be at these places."""
    return tables.table(FIRST, SECOND, handles=[tables.handle(offset, len(FIRST)) for offset in offsets])


AFTER_FIRST = len(FIRST) + 5
TABLES: dict[str, tuple[bytes, list[tuple[bytes, bytes]] | str]] = {
    "no blocks": (tables.table(), []),
    "a footer cut short": (FOOTER[1:], "the index is cut short, or is not an index"),
    "a footer of something else": (FOOTER[:-1] + b"\0", "the index is cut short, or is not an index"),
    "a footer alone": (FOOTER, "the index does not match its checksum"),
    "a key lower than the one before": (one(row(0, b"b", b""), row(0, b"a", b"")), "the index is not in order"),
    "a key twice": (one(row(0, b"b", b""), row(0, b"b", b"")), "the index is not in order"),
    "blocks that touch": (two(0, AFTER_FIRST), [(b"a", b""), (b"b", b"")]),
    "a block in the one before": (two(0, AFTER_FIRST - 1), "the index has blocks that overlap"),
    "a block twice": (two(0, 0), "the index has blocks that overlap"),
    "a block before the last": (two(AFTER_FIRST, AFTER_FIRST - 1), "the index has blocks that overlap"),
    "restarts alone": (one(restarts=1), []),
    "more restarts than room": (one(restarts=2), "the index has a block with more restarts than it has room for"),
    "an entry before the restarts": (one(row(0, b"a", b"1234")), [(b"a", b"1234")]),
    "an entry into the restarts": (one(row(0, b"a", b"123"), restarts=2), "the index ends within an entry"),
    "no place of a block": (tables.table(b"\0\0\0", handles=[b""]), "the index ends within an entry"),
    "a block of two bytes": (tables.table(b"\0\0"), "the index ends within an entry"),
    "a block of three bytes": (tables.table(b"\0\0\0"), "the index ends within an entry"),
    "a value to the end of the block": (one(WHOLE), [(b"a", b"123")]),
    "a value beyond the block": (one(WHOLE[:-1]), "the index ends within an entry"),
    "a key that shares all": (one(row(0, b"ab", b""), row(2, b"c", b"")), [(b"ab", b""), (b"abc", b"")]),
    "a key that shares more": (one(row(0, b"ab", b""), row(3, b"c", b"")), "the index ends within an entry"),
}


@pytest.mark.parametrize("name", TABLES)
def test_entries_of_a_table_are_read_or_what_is_wrong_is_named(name: str) -> None:
    table, expected = TABLES[name]
    if isinstance(expected, str):
        assert refused(table) == expected
    else:
        assert read(table) == expected


def test_an_index_block_may_lie_against_the_footer_and_no_further() -> None:
    empty = tables.block([])
    table = tables.table()
    assert table[: len(empty)] == empty

    def placed(size: int) -> bytes:
        return table[:-48] + (tables.handle(0, 0) + tables.handle(0, size)).ljust(40, b"\0") + tables.MAGIC

    assert read(placed(len(empty))) == []
    assert refused(placed(len(table) - 5)) == "the index does not match its checksum"
    assert refused(placed(len(table) - 4)) == "the index is cut short"


def test_a_compressed_block_is_said_to_be_one() -> None:
    table = bytearray(one(row(0, b"a", b"")))
    content = tables.block([row(0, b"a", b"")])
    table[len(content)] = 1
    struct.pack_into("<I", table, len(content) + 1, masked_crc32c(content + b"\1"))
    assert refused(bytes(table)) == "the index is compressed, which dtctl cannot read"


def test_the_longest_key_is_read_and_a_longer_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_bundle, "_LONGEST_KEY", 5)
    assert read(one(row(0, b"abcd", b""), row(4, b"e", b"")))[1][0] == b"abcde"
    assert refused(one(row(0, b"abcd", b""), row(4, b"ef", b""))) == "the index ends within an entry"


def test_check_is_called_for_each_block_and_regularly_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_bundle, "_BETWEEN_CHECKS", 2)
    asked: list[int] = []
    table = one(*(row(0, b"%d" % number, b"") for number in range(5)))
    seen = [len(asked) for _ in entries(table, lambda: asked.append(1))]
    assert seen == [2, 2, 3, 3, 4]  # the index block, the block, and after each second entry
    assert len(asked) == 4


def test_fields_of_every_kind_are_read_in_their_order() -> None:
    message = (
        varint(1 << 3) + varint(300)
        + varint(2 << 3 | 2) + varint(3) + b"abc"
        + varint(3 << 3 | 5) + struct.pack("<I", 7)
        + varint(4 << 3 | 1) + struct.pack("<Q", 1 << 40)
        + varint(1 << 3) + varint(5)
    )  # fmt: skip
    assert fields(message) == {1: [300, 5], 2: [b"abc"], 3: [7], 4: [1 << 40]}
    assert fields(b"") == {}


def test_a_field_of_an_unknown_kind_is_refused() -> None:
    assert refused_message(varint(1 << 3 | 3)) == "an entry of the index is not a protocol buffer"


@pytest.mark.parametrize("cut", [b"\x08", b"\x0d\0\0\0", b"\x09\0\0\0\0\0\0\0"])
def test_a_field_that_is_cut_short_is_refused(cut: bytes) -> None:
    assert refused_message(cut) == "an entry of the index ends within a field"


def test_message_with_too_many_fields_is_refused() -> None:
    field = tables.message({1: 1})
    assert fields(field * 2) == {1: [1, 1]}
    assert refused_message(field * (encodings.MOST_FIELDS + 1)) == "an entry of the index has too many fields"


def test_a_number_has_at_most_ten_bytes() -> None:
    largest = (1 << 64) - 1
    assert fields(tables.message({1: largest})) == {1: [largest]}
    assert refused_message(tables.message({1: 1 << 70})) == "an entry of the index has a number that is too long"


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


def test_a_checksum_continues_from_what_stood_before() -> None:
    data = random.Random(1).randbytes(50_000)
    assert crc32c(data[20_000:], crc32c(data[:20_000])) == crc32c(data)
