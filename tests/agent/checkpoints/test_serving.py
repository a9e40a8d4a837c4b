"""What a controller asks about single checkpoints: files in parts, and nothing but what the host has reported."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dtctl.agent.checkpoints import orbax, verifying
from dtctl.agent.checkpoints.verifying import verify
from dtctl.agent.host.budget import Spent
from dtctl.agent.host.errors import Refused
from dtctl.agent.records.kinds import checked
from dtctl.agent.rooms.checkpoints import single as serving
from dtctl.agent.rooms.checkpoints.records import FetchRequest, FilePart, FileSent, PruneRequest, VerifyRequest
from tests.agent.checkpoints import tables
from tests.agent.checkpoints.test_checkpoints import DATA, cut
from tests.unit.agent.checkpoints.test_formats import saved


class KnownRun:
    """A run with this directory, which its settings name or not."""

    def __init__(self, directory: Path, *, known: bool = True) -> None:
        self.known = [str(directory)] if known else []
        self._directory = str(directory)

    def places(self) -> list[str]:
        return [self._directory]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    shutil.copytree(DATA / "tf1_sharded", tmp_path / "out")
    return tmp_path / "out"


def asked(kind: Any, **fields: Any) -> Any:
    return checked(kind, {"type": "x", "cluster": "c", "host": "a", **fields})


def fetched(directory: Path, prefix: str = "model.ckpt-300", **fields: Any) -> tuple[dict[str, bytes], list[FileSent]]:
    """The bytes that were sent of each file, and what was reported of it in the end."""
    parts: dict[str, bytes] = {}

    def put(part: FilePart, data: bytes) -> None:
        assert part["offset"] + len(data) <= part["total"]
        parts[part["name"]] = parts.get(part["name"], b"") + data

    run: Any = KnownRun(directory)
    place = {"dir": str(directory), "prefix": prefix}
    fields.setdefault("files", [f"{prefix}.data-{shard:05d}-of-00003" for shard in range(3)] + [f"{prefix}.index"])
    return parts, serving.fetch(run, asked(FetchRequest, of=place, **fields), put)


def test_all_files_are_sent_the_index_last(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PART_BYTES", 50)
    parts, answer = fetched(directory)
    assert parts == {path.name: path.read_bytes() for path in directory.iterdir()}
    assert list(parts)[-1] == "model.ckpt-300.index"
    assert [one["sha256"] for one in answer] == [hashlib.sha256(parts[one["name"]]).hexdigest() for one in answer]


def test_only_the_files_that_are_wanted_and_there_are_sent(directory: Path) -> None:
    assert list(fetched(directory, files=["model.ckpt-300.meta"])[0]) == []
    parts, _ = fetched(directory, files=["model.ckpt-300.data-00001-of-00003"])
    assert list(parts) == ["model.ckpt-300.data-00001-of-00003"]


def test_of_a_file_that_has_arrived_in_part_the_rest_is_sent(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PART_BYTES", 50)
    name = "model.ckpt-300.index"
    status = (directory / name).stat()
    identity = f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
    whole = (directory / name).read_bytes()
    parts, answer = fetched(directory, have=[{"name": name, "size": 70, "identity": identity}])
    assert parts[name] == whole[70:]
    assert answer[-1]["sha256"] == hashlib.sha256(whole).hexdigest(), "of all of it"
    assert fetched(directory, have=[{"name": name, "size": 70, "identity": "another"}])[0][name] == whole
    assert fetched(directory, have=[{"name": name, "size": len(whole), "identity": identity}])[0][name] == b""


@pytest.mark.parametrize(
    "name", ["checkpoint", "model.ckpt-3000.index", "../out/model.ckpt-300.index", "/nowhere/passwd", ""]
)
def test_no_file_of_anything_else_is_sent(directory: Path, name: str) -> None:
    with pytest.raises(Refused, match=r"is no file of 'model\.ckpt-300'"):
        fetched(directory, files=[name])


def test_an_empty_shard_is_sent_as_nothing(directory: Path) -> None:
    (directory / "model.ckpt-300.data-00001-of-00003").write_bytes(b"")
    parts, answer = fetched(directory, files=["model.ckpt-300.data-00001-of-00003"])
    assert (parts, answer[0]["size"]) == ({"model.ckpt-300.data-00001-of-00003": b""}, 0)


def test_a_link_is_not_followed(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (directory / "model.ckpt-300.index").unlink()
    (directory / "model.ckpt-300.index").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="is a link"):
        fetched(directory)


def test_a_link_of_another_user_leads_nowhere(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "private").mkdir()
    (directory / "chief").symlink_to(tmp_path / "private")
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    if os.getuid() == 0:  # whose links are followed
        os.lchown(directory / "chief", 4712, 4712)
    with pytest.raises(OSError, match="another user"):
        fetched(directory, "chief/model.ckpt-300", files=[])


@pytest.mark.parametrize("prefix", ["../out/model.ckpt-300", "/nowhere/passwd", "a/b/c", "", ".", "a/..", "a\0b"])
def test_nothing_outside_can_be_named(directory: Path, prefix: str) -> None:
    with pytest.raises(Refused, match="not the name of a checkpoint"):
        fetched(directory, prefix, files=[])


def test_only_directories_of_the_run_can_be_named(directory: Path, tmp_path: Path) -> None:
    run: Any = KnownRun(tmp_path / "other")
    place = {"dir": str(directory), "prefix": "model.ckpt-300"}
    with pytest.raises(Refused, match="no directory of this run"):
        serving.verify(run, asked(VerifyRequest, wanted=[place]), lambda: None)


def test_nothing_is_removed_where_no_setting_leads(directory: Path) -> None:
    run: Any = KnownRun(directory, known=False)
    with pytest.raises(Refused, match="no setting of this run names"):
        serving.prune(run, asked(PruneRequest, dirs=[str(directory)], keep=1), False, lambda: None)


def test_what_was_read_is_reported(directory: Path) -> None:
    run: Any = KnownRun(directory)
    place = {"dir": str(directory), "prefix": "model.ckpt-300"}
    [result] = serving.verify(run, asked(VerifyRequest, wanted=[place]), lambda: None)
    assert (result["problems"], result["unread"], result["tensors"], result["read_bytes"]) == ([], None, 5, 180)
    [result] = serving.verify(run, asked(VerifyRequest, wanted=[place], limit_s=0), lambda: None)
    assert result["problems"] == []
    assert result["unread"] is not None


def test_reading_ends_when_the_controller_is_gone(directory: Path) -> None:
    run: Any = KnownRun(directory)
    with pytest.raises(KeyboardInterrupt):
        serving.verify(
            run,
            asked(VerifyRequest, wanted=[{"dir": str(directory), "prefix": "model.ckpt-300"}]),
            Mock(side_effect=KeyboardInterrupt),
        )


def test_a_directory_of_orbax_is_verified_by_its_end_sent_and_not_removed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        saved(tmp_path / str(step))
    saved(tmp_path / "4.orbax-checkpoint-tmp", committed=False)
    run: Any = KnownRun(tmp_path)
    wanted = [{"dir": str(tmp_path), "prefix": name} for name in ("3", "4.orbax-checkpoint-tmp")]
    whole, begun = serving.verify(run, asked(VerifyRequest, wanted=wanted, limit_s=60.0), lambda: None)
    assert whole["problems"] == []
    assert whole["unread"] == orbax.NO_CHECKSUMS
    assert begun["problems"] == ["the save has not ended, or was interrupted"]
    parts, answer = fetched(tmp_path, "3", files=[])
    assert parts == {
        str(path.relative_to(tmp_path / "3")): path.read_bytes()
        for path in (tmp_path / "3").rglob("*")
        if path.is_file()
    }
    assert {one["name"] for one in answer} == parts.keys()
    (pruned,) = serving.prune(
        run, asked(PruneRequest, dirs=[str(tmp_path)], keep=1, dry_run=False), False, lambda: None
    )
    assert pruned["removed"] == []
    assert (tmp_path / "1" / "_CHECKPOINT_METADATA").exists()


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


def test_checkpoints_of_tensorflow_are_sound(prefix: Path) -> None:
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


def test_missing_and_shortened_files_are_reported(prefix: Path) -> None:
    [first, *_] = sorted(prefix.parent.glob(f"{prefix.name}.data-*"))
    cut(first)
    assert "is cut short" in verify(str(prefix)).problems[0]
    first.unlink()
    assert "is missing" in verify(str(prefix)).problems[0]
    cut(Path(f"{prefix}.index"))
    assert verify(str(prefix)).problems == ["the index is cut short, or is not an index"]
    Path(f"{prefix}.index").unlink()
    assert verify(str(prefix)).problems == ["the index is missing"]


def test_a_tensor_is_named_as_people_know_it(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tf1_plain", tmp_path / "copy")
    flipped(tmp_path / "copy/model.ckpt-100.data-00000-of-00001", 20)
    [problem] = verify(str(tmp_path / "copy/model.ckpt-100")).problems
    assert problem == "a part of embedding does not match its checksum"


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


def test_fifo_instead_of_a_shard_blocks_no_reader(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tf2_step", tmp_path / "copy")
    shard = tmp_path / "copy/ckpt-1.data-00000-of-00001"
    shard.unlink()
    os.mkfifo(shard)
    assert "is a FIFO" in verify(str(tmp_path / "copy/ckpt-1")).problems[0]


def test_tensors_that_share_bytes_are_not_read_again_and_again(tmp_path: Path) -> None:
    """A small file would otherwise keep `pull`, which verifies without a limit of time, busy for days."""
    (tmp_path / "m-1.data-00000-of-00001").write_bytes(bytes(1 << 20))
    place = tables.message({1: 1, 5: 1 << 20})
    entries = [tables.entry(b"%05d" % number, place) for number in range(20_000)]
    (tmp_path / "m-1.index").write_bytes(tables.index(1, *entries))
    verdict = verify(str(tmp_path / "m-1"))
    assert verdict.read_bytes == 1 << 20
    assert verdict.unread == "00001 lies within another tensor: what follows it was not read"
    assert not verdict.sound


def test_of_tensors_without_end_only_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that share long beginnings: 14 MB of an index were 740 MB in memory."""
    assert verifying._MOST_TENSORS <= 200_000
    monkeypatch.setattr(verifying, "_MOST_TENSORS", 10)
    (tmp_path / "m-1.data-00000-of-00001").write_bytes(bytes(20))
    rows = (tables.entry(b"%02d" % number, tables.message({1: 1, 4: number, 5: 1})) for number in range(20))
    (tmp_path / "m-1.index").write_bytes(tables.index(1, *rows))
    verdict = verify(str(tmp_path / "m-1"))
    assert (verdict.tensors, verdict.unread) == (10, "only the first 10 tensors were read")
