"""Every byte of a checkpoint is read, and each that differs is found; TensorFlow's own reader: tests/training."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import verifying
from dtctl.agent.checkpoints.verifying import verify
from dtctl.agent.host.budget import Spent
from dtctl.agent.host.crc32c import masked_crc32c
from tests.agent.checkpoints.test_checkpoints import DATA, cut

PREFIXES = sorted(str(path.relative_to(DATA).with_suffix("")) for path in DATA.rglob("*.index"))


@pytest.fixture(params=PREFIXES)
def prefix(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Of a copy."""
    shutil.copytree((DATA / request.param).parent, tmp_path / "copy")
    return tmp_path / "copy" / Path(request.param).name


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_what_tensorflow_wrote_is_sound(prefix: Path) -> None:
    verdict = verify(str(prefix))
    assert (verdict.problems, verdict.unread, verdict.sound) == ([], None, True)
    data = sum(path.stat().st_size for path in prefix.parent.glob(f"{prefix.name}.data-*"))
    assert verdict.read_bytes == verdict.all_bytes == data


def test_a_byte_of_the_data_that_differs_is_found(prefix: Path) -> None:
    for path in prefix.parent.glob(f"{prefix.name}.data-*"):
        before = path.read_bytes()
        for at in range(0, len(before), 11):
            flipped(path, at)
            assert verify(str(prefix)).problems, (path.name, at)
            path.write_bytes(before)


def test_a_byte_of_the_index_that_differs_is_found(prefix: Path) -> None:
    """Less the metaindex and the rest of the footer, which nobody reads, TensorFlow neither."""
    path = Path(f"{prefix}.index")
    before = path.read_bytes()
    meta = _metaindex(before)
    for at in range(0, len(before) - 48, 13):
        flipped(path, at)
        assert verify(str(prefix)).problems or meta[0] <= at < sum(meta) + 5, at
        path.write_bytes(before)


def test_a_missing_and_a_shortened_shard_are_reported(prefix: Path) -> None:
    [first, *_] = sorted(prefix.parent.glob(f"{prefix.name}.data-*"))
    cut(first)
    assert "is cut short" in verify(str(prefix)).problems[0]
    first.unlink()
    assert "is missing" in verify(str(prefix)).problems[0]
    Path(f"{prefix}.index").unlink()
    assert verify(str(prefix)).problems == ["the index is missing"]


def test_a_tensor_is_named_as_people_know_it(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tf1_plain", tmp_path / "copy")
    flipped(tmp_path / "copy/model.ckpt-100.data-00000-of-00001", 20)
    [problem] = verify(str(tmp_path / "copy/model.ckpt-100")).problems
    assert problem == "a part of embedding does not match its checksum"


def test_a_compressed_index_is_said_not_to_be_readable(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tf1_plain", tmp_path / "copy")
    path = tmp_path / "copy/model.ckpt-100.index"
    data = bytearray(path.read_bytes())
    end = data.index(masked_crc32c(bytes(data[: _first_block(data)])).to_bytes(4, "little")) - 1
    data[end] = 1  # snappy
    data[end + 1 : end + 5] = masked_crc32c(bytes(data[: end + 1])).to_bytes(4, "little")
    path.write_bytes(data)
    assert verify(str(path.with_suffix(""))).problems == ["the index is compressed, which dtctl cannot read"]


def _metaindex(index: bytes) -> tuple[int, int]:
    """Where it begins and how long it is: the first two numbers of the footer."""
    numbers, value, shift = [], 0, 0
    for byte in index[-48:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    return numbers[0], numbers[1]


def _first_block(data: bytearray) -> int:
    """How many bytes the first block has with the byte that tells its compression."""
    for end in range(1, len(data) - 4):
        if data[end : end + 4] == masked_crc32c(bytes(data[:end])).to_bytes(4, "little"):
            return end
    raise AssertionError("no block")


def test_time_that_is_over_is_reported_and_nothing_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "_PART_BYTES", 8)
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > 8:
            raise Spent("it took too long")

    verdict = verify(str(DATA / "tf2_step/ckpt-1"), check)
    assert verdict.problems == []
    assert verdict.unread is not None
    assert "of 309 bytes of tensors were read: it took too long" in verdict.unread
    assert not verdict.sound


def test_a_fifo_in_the_place_of_a_shard_holds_nobody_up(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tf2_step", tmp_path / "copy")
    shard = tmp_path / "copy/ckpt-1.data-00000-of-00001"
    shard.unlink()
    os.mkfifo(shard)
    assert "is a FIFO" in verify(str(tmp_path / "copy/ckpt-1")).problems[0]
