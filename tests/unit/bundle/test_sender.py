"""The transfer: files are read once, compressed once, and sent only as scanned, whatever another user does to them."""

from __future__ import annotations

import dataclasses
import os
import random
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.values import BLOCK_BYTES, CHUNK_BYTES, LARGE_BYTES
from dtctl.bundle import Bundle, FileEntry
from dtctl.bundle.scanning import _Found, scan
from dtctl.bundle.sender import Chunk, Chunks, Sender
from dtctl.errors import AgentError, ConnectionLost, PreflightError
from dtctl.model import Host, Local
from dtctl.transport.seam import Message
from tests.impostors import directory, fifo, in_place_of_a_file, link_without_end


class Recorder:
    """A session whose agent only receives, or sends given frames."""

    def __init__(self, name: str = "h1", says: list[Message | Exception] | None = None, takes: int = 10**9) -> None:
        self.host = Host(name, Local())
        self.facts: Mapping[str, Any] = {}
        self.sent: list[Message] = []
        self.says = says or []
        self._takes = takes

    def greeted(self) -> float:
        return time.time()

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        if len(self.sent) == self._takes:
            raise ConnectionLost("gone")
        self.sent.append(Message(fields, payload))

    def receive(self, timeout_s: float | None = None) -> Message:
        if not self.says:
            raise TimeoutError
        answer = self.says.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None: ...

    def files(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for message in self.sent:
            plain = zlib.decompress(message.payload) if message["encoding"] == "zlib" else message.payload
            assert len(plain) <= CHUNK_BYTES
            found[message["index"]] = found.get(message["index"], b"") + plain
        return found


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    code = tmp_path / "code"
    code.mkdir()
    (code / "empty").write_text("")
    (code / "mixed").write_bytes(bytes(CHUNK_BYTES) + random.Random(1).randbytes(CHUNK_BYTES))
    (code / "noise").write_bytes(random.Random(2).randbytes(CHUNK_BYTES + 1))
    (code / "text").write_text("epoch\n" * 100_000)
    return scan(code)


def need(*indexes: int) -> Message:
    return Message({"type": "need", "files": list(indexes)})


def content(bundle: Bundle) -> dict[int, bytes]:
    return {index: (bundle.root / file.path).read_bytes() for index, file in enumerate(bundle.manifest.files)}


@pytest.mark.parametrize("in_memory_bytes", [1 << 26, 0, 10_000])
def test_every_host_gets_the_files_it_requested(bundle: Bundle, in_memory_bytes: int) -> None:
    with Sender(bundle, in_memory_bytes) as sender:
        for _ in range(2):
            session = Recorder()
            assert sender.serve(session, need(0, 1, 2, 3)) == 4
            assert session.files() == content(bundle)
        some = Recorder()
        sender.serve(some, need(3))
        assert set(some.files()) == {3}


def test_frames_name_the_last_of_each_file_and_compress_what_shrinks(bundle: Bundle) -> None:
    session = Recorder()
    with Sender(bundle) as sender:
        sender.serve(session, need(0, 1, 2, 3))
    frames = [(message["index"], message["encoding"], message["last"]) for message in session.sent]
    mixed, noise = [(1, "zlib", False), (1, "raw", True)], [(2, "raw", False), (2, "raw", True)]
    assert frames == [(0, "raw", True), *mixed, *noise, (3, "zlib", False), (3, "zlib", False), (3, "zlib", True)]


def test_noise_within_a_chunk_is_not_compressed(bundle: Bundle) -> None:
    half = CHUNK_BYTES // 2
    (bundle.root / "text").write_bytes(b"epoch\n" * (half // 6) + random.Random(3).randbytes(half))
    session = Recorder()
    with Sender(scan(bundle.root)) as sender:
        sender.serve(session, need(3))
    sent = [(message["encoding"], len(message.payload)) for message in session.sent]
    assert [encoding for encoding, _ in sent] == ["zlib", "raw"]
    assert sent[1][1] >= half - 16 * 1024
    assert session.files()[3] == (bundle.root / "text").read_bytes()


def test_the_manifest_is_sent_when_it_is_needed(bundle: Bundle) -> None:
    session = Recorder()
    with Sender(bundle) as sender:
        assert sender.serve(session, Message({"type": "need", "manifest": True})) == 0
    [message] = session.sent
    assert message.type == "manifest"
    assert zlib.decompress(message.payload) == bundle.manifest.canonical


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The reads, as they happen: paths and offsets."""
    made: list[tuple[str, int]] = []
    really = Chunks._chunks

    def noted(self: Chunks, file: FileEntry, offset: int = 0, *rest: Any) -> tuple[Chunk, ...]:
        made.append((file.path, offset))
        return really(self, file, offset, *rest)

    monkeypatch.setattr(Chunks, "_chunks", noted)
    return made


def test_ten_concurrent_transfers_read_each_file_once(bundle: Bundle, made: list[tuple[str, int]]) -> None:
    sessions = [Recorder(f"h{number}") for number in range(10)]
    with Sender(bundle) as sender:
        threads = [threading.Thread(target=sender.serve, args=(session, need(0, 1, 2, 3))) for session in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(made) == [("empty", 0), ("mixed", 0), ("noise", 0), ("text", 0)]
    assert all(session.files() == content(bundle) for session in sessions)


def test_least_recently_used_chunks_are_evicted_when_memory_is_full(
    bundle: Bundle, made: list[tuple[str, int]]
) -> None:
    with Sender(bundle, 3 * CHUNK_BYTES) as sender:
        for indexes in ((1, 3), (1,), (2,), (3,), (1,)):  # 1 is used again, so 3 is the oldest when 2 comes
            sender.serve(Recorder(), need(*indexes))
        kept = sum(len(chunk.data) for chunks in sender._chunks._made.values() for chunk in chunks)
    assert [path for path, _ in made] == ["mixed", "text", "noise"]
    assert kept <= 3 * CHUNK_BYTES


@pytest.fixture
def large(tmp_path: Path) -> Bundle:
    code = tmp_path / "large"
    code.mkdir()
    (code / "data").write_bytes(random.Random(4).randbytes(LARGE_BYTES + 5))
    # As after most scans: the hash of the whole file is known, and those of its blocks are not.
    return dataclasses.replace(scan(code), digests={})


def test_a_large_file_is_sent_as_it_is_read(large: Bundle, made: list[tuple[str, int]]) -> None:
    session = Recorder()
    with Sender(large) as sender:
        sender.serve(session, need(0))
    assert session.files() == content(large)
    assert made == [("data", offset) for offset in range(0, LARGE_BYTES + 5, BLOCK_BYTES)]
    assert [message["last"] for message in session.sent] == [False] * (len(session.sent) - 1) + [True]


def test_a_large_file_that_changes_while_it_is_sent_fails(large: Bundle) -> None:
    chunks = Chunks(large)
    chunks.of(0, 0)
    os.utime(large.root / "data", (1, 1))
    with pytest.raises(PreflightError, match="data changed while it was being sent"):
        chunks.of(0, 1)


@pytest.mark.parametrize("change", ["other", "gone", "longer", "directory"])
def test_a_file_that_is_not_what_was_scanned_is_not_sent(bundle: Bundle, change: str) -> None:
    path = bundle.root / "text"
    text = path.read_text()
    path.unlink()
    if change == "directory":
        path.mkdir()
    elif change != "gone":
        path.write_text({"other": text.replace("epoch", "EPOCH", 1), "longer": text + "x"}[change])
    session = Recorder()
    with Sender(bundle) as sender:
        for _ in range(2):
            with pytest.raises(PreflightError, match="text changed while it was being sent") as refused:
                sender.serve(session, need(3))
            assert refused.value.hint == "run dtctl up again"
    assert session.sent == []


def test_progress_ends_at_the_total(bundle: Bundle) -> None:
    reported: list[tuple[str, int, int]] = []
    with Sender(bundle) as sender:
        sender.serve(Recorder("h7"), need(1, 3), lambda *values: reported.append(values))
        assert reported[-1] == ("h7", 2 * CHUNK_BYTES + 600_000, 2 * CHUNK_BYTES + 600_000)
        assert reported == sorted(reported)
        reported.clear()
        sender.serve(Recorder("h7"), need(), lambda *values: reported.append(values))
        assert reported == []


def test_agent_error_is_received_while_sending(bundle: Bundle) -> None:
    full = AgentError("disk_full", "h1: the disk is full")
    progress = Message({"type": "progress"})
    with Sender(bundle) as sender:
        session = Recorder(says=[progress, progress, full])
        with pytest.raises(AgentError, match="the disk is full"):
            sender.serve(session, need(1, 2, 3))
        assert len(session.sent) == 1
        broken = Recorder(says=[TimeoutError(), progress, full], takes=1)
        with pytest.raises(AgentError, match="the disk is full"):
            sender.serve(broken, need(1, 2, 3))
        with pytest.raises(ConnectionLost):
            sender.serve(Recorder(takes=1), need(1, 2, 3))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "x.py").write_text("hunter2")
    code = tmp_path / "code"
    (code / "sub").mkdir(parents=True)
    (code / "sub" / "x.py").write_text("mine")
    return code


def link_elsewhere(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.parent.parent.parent / "private" / "x.py")


EXCHANGES = [link_elsewhere, Path.unlink, *map(in_place_of_a_file, (fifo, link_without_end, directory))]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_file_that_is_replaced_between_stat_and_read_is_refused(
    code: Path, monkeypatch: pytest.MonkeyPatch, exchange: Callable[[Path], None]
) -> None:
    really = _Found._read

    def late(self: _Found, parent: int, path: str) -> Any:
        exchange(code / path)
        return really(self, parent, path)

    monkeypatch.setattr(_Found, "_read", late)
    with pytest.raises(PreflightError, match=r"cannot read .*sub/x\.py"):
        scan(code)


def test_a_directory_that_is_replaced_by_a_link_is_refused(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def late(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if path == "sub":
            (code / "sub").rename(code / "moved")
            (code / "sub").symlink_to(code.parent / "private")
        return really(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(PreflightError, match=r"sub is not a directory|cannot list .*sub"):
        scan(code)


def test_a_directory_that_is_replaced_while_it_is_read_does_not_change_the_scan(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = _Found._read

    def late(self: _Found, parent: int, path: str) -> Any:
        (code / "sub").rename(code / "moved")
        (code / "sub").symlink_to(code.parent / "private")
        return really(self, parent, path)

    monkeypatch.setattr(_Found, "_read", late)
    bundle = scan(code)
    assert [file.size for file in bundle.manifest.files] == [len("mine")]
    with pytest.raises(PreflightError, match="changed while it was being sent"):
        Chunks(bundle).of(0)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_file_that_is_replaced_before_it_is_sent_is_not_sent(code: Path, exchange: Callable[[Path], None]) -> None:
    chunks = Chunks(scan(code))
    exchange(code / "sub" / "x.py")
    with pytest.raises(PreflightError, match="changed while it was being sent"):
        chunks.of(0)


def test_a_file_that_grows_without_end_is_refused(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "read", lambda descriptor, size: bytes(size))
    with pytest.raises(PreflightError, match="changed while it was read"):
        scan(code)


def test_a_sparse_file_is_refused_before_it_is_read(code: Path) -> None:
    with (code / "big").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(PreflightError, match="big is a sparse file") as refused:
        scan(code)
    assert ".dtctlignore" in refused.value.hint


@pytest.mark.parametrize("name", [".gitignore", ".dtctlignore"])
@pytest.mark.parametrize("make", [fifo, link_without_end])
def test_special_file_as_ignore_file_does_not_block(code: Path, name: str, make: Callable[[Path], None]) -> None:
    make(code / name)
    with pytest.raises(PreflightError, match=f"cannot read .*{name}"):
        scan(code)
