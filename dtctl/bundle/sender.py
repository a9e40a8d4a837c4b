"""The controller's half of the transfer: answers what agents say they need."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from dtctl.agent.records.answers import BLOCK_BYTES
from dtctl.bundle.manifest import Bundle, FileEntry
from dtctl.errors import ConnectionLost, PreflightError
from dtctl.folder import open_regular
from dtctl.transport.seam import Message, Session

CHUNK = 256 * 1024
"""Bytes of a file in one frame, before compression (docs/agent.md, "Bundles")."""

_WORTH_IT = 0.9
"""What does not shrink below this part of itself travels uncompressed."""
_SAMPLED = 16 * 1024
_SAMPLE = 512
"""So many bytes in the middle tell whether that many shrink: compressing noise takes four times the CPU of text."""
_IN_MEMORY = 64 * 1024 * 1024


@dataclass(frozen=True)
class Chunk:
    """One frame's bytes: in memory, or a piece of the overflow file."""

    compressed: bool
    plain_size: int
    data: bytes = b""
    offset: int = -1
    size: int = 0


class Chunks:
    """The chunks of a bundle's files, made when they are first asked for. Safe for many threads."""

    def __init__(self, bundle: Bundle, in_memory_bytes: int = _IN_MEMORY) -> None:
        self._bundle = bundle
        self._room = in_memory_bytes
        self._made: dict[tuple[int, int | None], tuple[Chunk, ...]] = {}
        self._digests: dict[int, bytes] = {}
        self._file_locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()
        self._overflow: int | None = None
        self._overflow_size = 0

    def of(self, index: int, block: int | None = None) -> tuple[Chunk, ...]:
        """The chunks of one file or of a block of it, at least one.

        Raises PreflightError when the file is not what was scanned.
        """
        digests = b"" if block is None else self.digests(index)
        with self._lock:
            file_lock = self._file_locks[index]
        with file_lock:
            made = self._made.get((index, block))
            if made is None:
                file = self._bundle.manifest.files[index]
                made = self._made[index, block] = (
                    self._make(file) if block is None else self._block(file, block, digests)
                )
            return made

    def digests(self, index: int) -> bytes:
        """The SHA-256 of each block of one file. Raises PreflightError when the file is not what was scanned."""
        with self._lock:
            file_lock = self._file_locks[index]
        with file_lock:
            if index not in self._digests:
                file = self._bundle.manifest.files[index]
                self._digests[index] = self._bundle.digests.get(file.path) or self._read_digests(file)
            return self._digests[index]

    def _read_digests(self, file: FileEntry) -> bytes:
        whole, digests = hashlib.sha256(), b""
        for block in _read(self._bundle.root / file.path, file.size, size=file.size, at_once=BLOCK_BYTES):
            whole.update(block)
            digests += hashlib.sha256(block).digest()
        if whole.hexdigest() != file.sha256:
            raise _changed(self._bundle.root / file.path)
        return digests

    def data(self, chunk: Chunk) -> bytes:
        if chunk.offset < 0:
            return chunk.data
        assert self._overflow is not None, "a chunk in the overflow file"
        return os.pread(self._overflow, chunk.size, chunk.offset)

    def close(self) -> None:
        """Lets go of everything; nothing may be asked for any more."""
        with self._lock:
            self._made.clear()
            if self._overflow is not None:
                os.close(self._overflow)
                self._overflow = None

    def _make(self, file: FileEntry) -> tuple[Chunk, ...]:
        return self._chunks(file, 0, file.size, file.sha256)

    def _block(self, file: FileEntry, number: int, digests: bytes) -> tuple[Chunk, ...]:
        digest = digests[32 * number : 32 * number + 32].hex()
        return self._chunks(file, number * BLOCK_BYTES, block_size(file, number), digest)

    def _chunks(self, file: FileEntry, offset: int, size: int, sha256: str) -> tuple[Chunk, ...]:
        """Reads the file once, so that what is sent is what was hashed."""
        hasher = hashlib.sha256()
        chunks: list[Chunk] = []
        for plain in _read(self._bundle.root / file.path, file.size, offset=offset, size=size):
            hasher.update(plain)
            for shrinks, run in _runs(plain):
                packed = zlib.compress(run, 1) if shrinks else run
                smaller = len(packed) < len(run)
                chunks.append(self._kept(smaller, len(run), packed if smaller else run))
        if hasher.hexdigest() != sha256:
            raise _changed(self._bundle.root / file.path)
        return tuple(chunks) or (Chunk(compressed=False, plain_size=0),)

    def _kept(self, compressed: bool, plain_size: int, data: bytes) -> Chunk:
        with self._lock:
            if len(data) <= self._room:
                self._room -= len(data)
                return Chunk(compressed, plain_size, data)
            if self._overflow is None:
                with tempfile.TemporaryFile() as file:  # has no name: it ends with its descriptor
                    self._overflow = os.dup(file.fileno())
            offset = self._overflow_size
            self._overflow_size += len(data)
        _write_at(self._overflow, data, offset)
        return Chunk(compressed, plain_size, offset=offset, size=len(data))


def _runs(data: bytes) -> Iterator[tuple[bool, bytes]]:
    """Cuts the data where it begins or ceases to be worth compressing."""
    starts = range(0, len(data), _SAMPLED)
    for shrinks, run in groupby(starts, lambda start: _shrinks(data[start : start + _SAMPLED])):
        first, *more = run
        yield shrinks, data[first : (more or [first])[-1] + _SAMPLED]


def _shrinks(data: bytes) -> bool:
    middle = max(0, (len(data) - _SAMPLE) // 2)
    sample = data[middle : middle + _SAMPLE]
    return len(zlib.compress(sample, 1)) <= _WORTH_IT * len(sample)


def block_size(file: FileEntry, number: int) -> int:
    return min(BLOCK_BYTES, file.size - number * BLOCK_BYTES)


def _read(path: Path, whole: int, *, size: int, offset: int = 0, at_once: int = CHUNK) -> Iterator[bytes]:
    """So many bytes of a file that has `whole`: one that has grown is not the one that was scanned."""
    try:
        with os.fdopen(open_regular(path, follow=False), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != whole:
                raise _changed(path)
            file.seek(offset)
            while size > 0 and (plain := _read_fully(file.fileno(), min(size, at_once))):
                size -= len(plain)
                yield plain
    except OSError as error:
        raise _changed(path, str(error.strerror)) from error


def _read_fully(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    while data and len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _changed(path: Path, detail: str = "") -> PreflightError:
    return PreflightError(f"{path} changed while it was being sent", detail=detail, hint="run dtctl up again")


SendReport = Callable[[str, int, int], None]
"""Called with the host's name, the bytes given to its connection and all that it needs, at most 20 times a second."""

_REPORT_EVERY_S = 0.05
_SWITCH_S = 0.05
"""While files are sent: threads that hand the interpreter over less often cost a fifth less CPU."""
_LISTEN_EVERY_S = 1.0


class Sender:
    """Sends one bundle to any number of hosts, from as many threads; a file is read and compressed once."""

    def __init__(self, bundle: Bundle, in_memory_bytes: int = _IN_MEMORY) -> None:
        self.bundle = bundle
        self._chunks = Chunks(bundle, in_memory_bytes)
        self._usual_switch_s = sys.getswitchinterval()

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Call it when no thread is sending any more."""
        self._chunks.close()
        sys.setswitchinterval(self._usual_switch_s)

    def serve(self, session: Session, need: Message, report: SendReport | None = None) -> int:
        """Answers one `need` frame; the number of files that it asked for.

        Raises PreflightError when a file is not what was scanned, AgentError when the agent says that it cannot go on,
        ConnectionLost.
        """
        try:
            if need.fields.get("manifest"):
                session.send({"type": "manifest"}, zlib.compress(self.bundle.manifest.canonical, 1))
            for index in need.fields.get("digests", ()):
                session.send({"type": "digests", "index": index}, self._chunks.digests(index))
            wanted: list[tuple[int, int | None]] = [(index, None) for index in need.fields.get("files", ())]
            wanted += [(one["index"], one["number"]) for one in need.fields.get("blocks", ())]
            self._send_files(session, wanted, report)
        except ConnectionLost:
            raise_agents_reason(session)
            raise
        return len({index for index, _ in wanted})

    def _send_files(
        self, session: Session, wanted: Sequence[tuple[int, int | None]], report: SendReport | None
    ) -> None:
        """Files, and of those with a number that block."""
        if wanted:
            sys.setswitchinterval(_SWITCH_S)
        files = self.bundle.manifest.files
        total = sum(files[at].size if block is None else block_size(files[at], block) for at, block in wanted)
        done = 0
        next_report = next_listen = time.monotonic()
        for index, block in wanted:
            chunks = self._chunks.of(index, block)
            for number, chunk in enumerate(chunks, 1):
                fields = {
                    "type": "file",
                    "index": index,
                    "encoding": "zlib" if chunk.compressed else "raw",
                    "last": number == len(chunks),
                }
                session.send(fields, self._chunks.data(chunk))
                done += chunk.plain_size
                now = time.monotonic()
                if report is not None and now >= next_report:
                    next_report = now + _REPORT_EVERY_S
                    report(session.host.name, done, total)
                if done < total and now >= next_listen:
                    next_listen = now + _LISTEN_EVERY_S
                    _receive(session)
        if report is not None and wanted:
            report(session.host.name, total, total)


def _receive(session: Session) -> None:
    """Reads the agent's progress reports, so that it never waits for us. Raises AgentError."""
    try:
        while session.receive(timeout_s=0).type == "progress":
            pass
    except TimeoutError:
        pass


def raise_agents_reason(session: Session) -> None:
    """The agent may have sent the reason before the connection broke. Raises its AgentError, if there is one."""
    try:
        while True:
            session.receive(timeout_s=1)
    except (ConnectionLost, TimeoutError):
        pass
