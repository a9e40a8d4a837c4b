"""Any bytes whatever where a checkpoint is looked for: an answer, soon, and of the form that everybody relies on."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.checkpoints import reading, repair, tensor_bundle, verifying
from dtctl.agent.records.answers import CheckpointReport
from tests.agent.checkpoints import tables
from tests.agent.checkpoints.test_checkpoints import DATA
from tests.fuzz import cases

WHOLE = sorted(DATA.rglob("*.index"))
numbers = st.one_of(st.integers(0, 300), st.integers(0, (1 << 70) - 1))
keys = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"", b"global_step", b"a/iter/.ATTRIBUTES/VARIABLE_VALUE", b"save_counter"]),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A model.ckpt-100 that TensorFlow wrote. All cases of a test are in the same directory, one after the other."""
    for path in (DATA / "tf1_plain").glob("model.ckpt-100.*"):
        shutil.copy(path, tmp_path)
        os.utime(tmp_path / path.name, (1e9, 1e9))
    return tmp_path


def beside_it(place: Path, index: bytes, shard: bytes | None = None) -> None:
    """A newer model.ckpt-999 with this index."""
    (place / "model.ckpt-999.index").write_bytes(index)
    if shard is not None:
        (place / "model.ckpt-999.data-00000-of-00001").write_bytes(shard)


def answers(place: Path) -> CheckpointReport:
    before = time.process_time()
    [found] = reading.report([str(place)])
    assert time.process_time() - before < 3
    assert json.loads(json.dumps(found)) == found
    assert {each["prefix"] for each in found["all"]} == {"model.ckpt-100", "model.ckpt-999"}
    assert found["newest_complete"] is not None
    assert len(json.dumps(found)) < 5000
    for each in found["all"]:
        assert each["complete"] == (each["problem"] is None)
        assert each["step"] is None or 0 <= each["step"] < 1 << 63
        assert 0 <= each["shards"] < 100_000
    return found


@cases
@given(st.sampled_from(WHOLE), st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=9)), max_size=4), st.binary())
def test_any_change_of_a_real_index(place: Path, source: Path, changes: list[tuple[int, bytes]], shard: bytes) -> None:
    index = source.read_bytes()
    for position, data in changes:
        index = index[:position] + data + index[position + len(data) :]
    beside_it(place, index, shard)
    answers(place)


@pytest.mark.parametrize("source", WHOLE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_changed_byte_of_an_index_is_damage_or_changes_no_entry(source: Path, tmp_path: Path) -> None:
    """As `verify` reads it, which calls nothing whole whose bytes are others where the format can tell."""
    for path in source.parent.glob(f"{source.stem}.*"):
        shutil.copy(path, tmp_path)
    index, whole = tmp_path / source.name, source.read_bytes()
    prefix = str(index)[: -len(".index")]
    assert not verifying.verify(prefix).problems
    entries = list(tensor_bundle.entries(whole))
    for at in range(len(whole)):
        for value in (0x01, 0x80, 0xFF):
            index.write_bytes(whole[:at] + bytes([whole[at] ^ value]) + whole[at + 1 :])
            if not verifying.verify(prefix).problems:
                assert list(tensor_bundle.entries(index.read_bytes())) == entries, (at, value)


@cases
@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
def test_any_block_with_a_right_checksum(place: Path, blocks: list[bytes], sealed: bool) -> None:
    if sealed:
        blocks = [one + tables.block([])[-8:] for one in blocks]
    beside_it(place, tables.table(*blocks))
    answers(place)


@st.composite
def indexes(draw: st.DrawFn) -> bytes:
    """Tables in the right form, with numbers of any size in header and entries."""
    header = tables.message(draw(st.dictionaries(st.integers(1, 4), numbers, max_size=4)))
    found = [tables.entry(b"", header)]
    for key in sorted(set(draw(st.lists(keys, max_size=6))) - {b""}):
        message = tables.message(draw(st.dictionaries(st.integers(1, 7), numbers, max_size=6)))
        found.append(tables.entry(key, draw(st.one_of(st.just(message), st.binary(max_size=30)))))
    return tables.table(tables.block(found))


@cases
@given(indexes(), st.binary(max_size=64))
def test_any_numbers_in_an_index_of_the_right_form(place: Path, index: bytes, shard: bytes) -> None:
    beside_it(place, index, shard)
    answers(place)


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)
endings = st.sampled_from(["", ".index", ".data-00000-of-00001", ".data-99999-of-00002", ".meta", "_temp", "-5.index"])


@cases
@given(st.lists(st.tuples(names, endings, st.binary(max_size=10)), max_size=8))
def test_any_names_in_a_directory(tmp_path: Path, files: list[tuple[str, str, bytes]]) -> None:
    for name, ending, data in files:
        (tmp_path / (name + ending)).write_bytes(data)
    [found] = reading.report([str(tmp_path)])
    assert json.loads(json.dumps(found)) == found
    assert found["newest_complete"] is None
    assert found["problem"] is None
    for path in tmp_path.iterdir():
        path.unlink()


state_lines = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["model_checkpoint_path", "all_model_checkpoint_paths"]).flatmap(
        lambda name: st.sampled_from(["model.ckpt-999", "/x/model.ckpt-999", "model.ckpt-100", '"', "\\n"]).map(
            lambda path: f'{name}: "{path}"'
        )
    ),
    st.just("all_model_checkpoint_timestamps: 1.5"),
)


@cases
@given(st.lists(state_lines, max_size=8), st.one_of(st.none(), st.binary(max_size=40)))
def test_repair_beside_any_state_file_moves_the_damaged_one_and_nothing_else(
    place: Path, lines: list[str], other: bytes | None
) -> None:
    beside_it(place, b"cut off")
    content = "\n".join(lines).encode("utf-8", "surrogatepass") if other is None else other
    (place / "checkpoint").write_bytes(content)
    [text] = repair.repair_directory(str(place))
    assert text.endswith("set aside")
    assert sorted(path.name for path in place.iterdir()) == [
        "checkpoint",
        "damaged",
        "model.ckpt-100.data-00000-of-00001",
        "model.ckpt-100.index",
    ]
    assert [path.name for path in (place / "damaged").iterdir()] == ["model.ckpt-999.index"]
    assert b'model_checkpoint_path: "model.ckpt-999"\n' not in (place / "checkpoint").read_bytes()
