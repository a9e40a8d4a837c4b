"""The controller's half of the transfer: answers the requests of agents."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from dtctl.agent.records.values import BLOCK_BYTES, CHUNK_BYTES, LARGE_BYTES
from dtctl.bundle import Bundle, FileEntry
from dtctl.dataclass import dataclass
from dtctl.errors import ConnectionLost, PreflightError
from dtctl.folder import open_regular
from dtctl.transport.seam import Message, Session

_WORTH_IT = 0.9
"""Data that does not shrink below this fraction of its size is sent uncompressed."""
_SAMPLED = 16 * 1024
_SAMPLE = 512
"""The size of the sample from the middle of _SAMPLED bytes that decides on compressing them: compressing noise takes
four times the CPU of text."""
_NOISY = 212
"""The fewest distinct bytes in a sample of noise: it usually has 221, and floating-point numbers have 204."""
IN_MEMORY_BYTES = 64 * 1024 * 1024
_TURNS = 64


@dataclass(frozen=True)
class Chunk:
    """The bytes of one frame."""

    compressed: bool
    plain_size: int
    data: bytes = b""


Key = tuple[int, int | None]
"""A file, or a block of it."""


class Chunks:
    """The chunks of a bundle's files, made on demand. Safe for many threads.

    The newest are kept for the other hosts, which are usually at the same file.
    """

    def __init__(self, bundle: Bundle, in_memory_bytes: int = IN_MEMORY_BYTES) -> None:
        self._bundle = bundle
        self._room = in_memory_bytes
        self._made: OrderedDict[Key, tuple[Chunk, ...]] = OrderedDict()
        self._digests: dict[int, bytes] = dict(_known_digests(bundle))
        self._times: dict[int, int] = {}
        self._turns = [threading.Lock() for _ in range(_TURNS)]
        self._lock = threading.Lock()

    def of(self, index: int, block: int | None = None) -> tuple[Chunk, ...]:
        """The chunks of one file or of a block of it, at least one.

        Raises PreflightError when the file is not what was scanned. A block of a file whose digests were not requested
        is checked by its host, with the rest of the file.
        """
        key = (index, block)
        with self._turns[hash(key) % _TURNS]:
            with self._lock:
                if key in self._made:
                    self._made.move_to_end(key)
                    return self._made[key]
            file = self._bundle.manifest.files[index]
            made = self._chunks(file) if block is None else self._block(index, file, block)
            self._keep(key, made)
            return made

    def digests(self, index: int) -> bytes:
        """The SHA-256 of each block of one file. Raises PreflightError if the file is not what was scanned."""
        with self._turns[index % _TURNS]:
            if index not in self._digests:
                self._digests[index] = self._read_digests(self._bundle.manifest.files[index])
            return self._digests[index]

    def _read_digests(self, file: FileEntry) -> bytes:
        whole, digests = hashlib.sha256(), b""
        for block in read_part(self._bundle.root / file.path, file.size, size=file.size, at_once=BLOCK_BYTES):
            whole.update(block)
            digests += hashlib.sha256(block).digest()
        if whole.hexdigest() != file.sha256:
            raise _changed(self._bundle.root / file.path)
        return digests

    def _keep(self, key: Key, chunks: tuple[Chunk, ...]) -> None:
        """Keeps these chunks and drops the oldest if there is no room."""
        with self._lock:
            self._made[key] = chunks
            self._room -= _size(chunks)
            while self._room < 0 and self._made:
                self._room += _size(self._made.popitem(last=False)[1])

    def close(self) -> None:
        """Frees all chunks; none may be requested afterwards."""
        with self._lock:
            self._made.clear()

    def _block(self, index: int, file: FileEntry, number: int) -> tuple[Chunk, ...]:
        digests = self._digests.get(index)
        digest = None if digests is None else digests[32 * number : 32 * number + 32].hex()
        if digest is None:
            self._refuse_change(index, file)
        return self._chunks(file, number * BLOCK_BYTES, block_size(file, number), digest)

    def _refuse_change(self, index: int, file: FileEntry) -> None:
        place = self._bundle.root / file.path
        try:
            changed_ns = place.lstat().st_mtime_ns
        except OSError as error:
            raise _changed(place, str(error.strerror)) from error
        if self._times.setdefault(index, changed_ns) != changed_ns:
            raise _changed(place)

    def _chunks(
        self, file: FileEntry, offset: int = 0, size: int | None = None, sha256: str | None = ""
    ) -> tuple[Chunk, ...]:
        """The chunks of a part of a file, which is read once, so that what is sent is what was hashed.

        `sha256`: of this part; "" if it is the whole file, None if unknown.
        """
        hasher = hashlib.sha256()
        chunks: list[Chunk] = []
        size = file.size if size is None else size
        for plain in read_part(self._bundle.root / file.path, file.size, offset=offset, size=size):
            if sha256 is not None:
                hasher.update(plain)
            for shrinks, run in _runs(plain):
                packed = zlib.compress(run, 1) if shrinks else run
                smaller = len(packed) < len(run)
                chunks.append(Chunk(smaller, len(run), packed if smaller else run))
        if sha256 is not None and hasher.hexdigest() != (sha256 or file.sha256):
            raise _changed(self._bundle.root / file.path)
        return tuple(chunks) or (Chunk(compressed=False, plain_size=0),)


def _size(chunks: tuple[Chunk, ...]) -> int:
    return sum(len(chunk.data) for chunk in chunks)


def _known_digests(bundle: Bundle) -> Iterator[tuple[int, bytes]]:
    if bundle.digests:
        for index, file in enumerate(bundle.manifest.files):
            if file.path in bundle.digests:
                yield index, bundle.digests[file.path]


def _runs(data: bytes) -> Iterator[tuple[bool, bytes]]:
    """Splits the data where it becomes, or stops being, worth compressing."""
    starts = range(0, len(data), _SAMPLED)
    for shrinks, run in groupby(starts, lambda start: _shrinks(data[start : start + _SAMPLED])):
        first, *more = run
        yield shrinks, data[first : (more or [first])[-1] + _SAMPLED]


def _shrinks(data: bytes) -> bool:
    middle = max(0, (len(data) - _SAMPLE) // 2)
    sample = data[middle : middle + _SAMPLE]
    if len(set(sample)) >= _NOISY:
        return False
    packer = zlib.compressobj(1, zlib.DEFLATED, -9, 1)  # with little memory, because its setup takes most of the time
    return len(packer.compress(sample) + packer.flush()) <= _WORTH_IT * len(sample)


def block_size(file: FileEntry, number: int) -> int:
    return min(BLOCK_BYTES, file.size - number * BLOCK_BYTES)


def read_part(path: Path, whole: int, *, size: int, offset: int = 0, at_once: int = CHUNK_BYTES) -> Iterator[bytes]:
    """`size` bytes of a file of `whole` bytes: a file that has grown is not the one that was scanned."""
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


def _changed(path: Path, detail: str = "") -> PreflightError:
    return PreflightError(f"{path} changed while it was being sent", detail=detail, hint="run dtctl up again")


SendReport = Callable[[str, int, int], None]
"""Called with the host's name, the bytes given to its connection and all that it needs, at most 20 times a second."""

_REPORT_EVERY_S = 0.05
_SWITCH_S = 0.05
"""The interpreter's switch interval while files are sent: switching less often saves a fifth of the CPU."""
_LISTEN_EVERY_S = 1.0


class Sender:
    """Sends one bundle to any number of hosts, from as many threads; concurrent transfers share what is read."""

    def __init__(self, bundle: Bundle, in_memory_bytes: int = IN_MEMORY_BYTES) -> None:
        self.bundle = bundle
        self._chunks = Chunks(bundle, in_memory_bytes)
        self._usual_switch_s = sys.getswitchinterval()

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the transfer. To be called when no thread is sending any more."""
        self._chunks.close()
        sys.setswitchinterval(self._usual_switch_s)

    def serve(self, session: Session, need: Message, report: SendReport | None = None) -> int:
        """Answers one `need` frame. Returns the number of files that it requested.

        Raises PreflightError if a file is not what was scanned, AgentError if the agent reports that it cannot
        continue, ConnectionLost.
        """
        try:
            if need.fields.get("manifest"):
                session.send({"type": "manifest"}, zlib.compress(self.bundle.manifest.canonical, 1))
            for index in need.fields.get("digests", ()):
                session.send({"type": "digests", "index": index}, self._chunks.digests(index))
            wanted: list[Key] = [(index, None) for index in need.fields.get("files", ())]
            wanted += [(one["index"], one["number"]) for one in need.fields.get("blocks", ())]
            self._send_files(session, wanted, report)
        except ConnectionLost:
            raise_agents_reason(session)
            raise
        return len({index for index, _ in wanted})

    def _send_files(self, session: Session, wanted: Sequence[Key], report: SendReport | None) -> None:
        """Sends files, or the numbered blocks of them."""
        if wanted:
            sys.setswitchinterval(_SWITCH_S)
        files = self.bundle.manifest.files
        total = sum(files[at].size if block is None else block_size(files[at], block) for at, block in wanted)
        done = 0
        next_report = next_listen = time.monotonic()
        for index, block, ends in self._pieces(wanted):
            chunks = self._chunks.of(index, block)
            for number, chunk in enumerate(chunks, 1):
                fields = {
                    "type": "file",
                    "index": index,
                    "encoding": "zlib" if chunk.compressed else "raw",
                    "last": ends and number == len(chunks),
                }
                session.send(fields, chunk.data)
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

    def _pieces(self, wanted: Sequence[Key]) -> Iterator[tuple[int, int | None, bool]]:
        """The pieces in which files are read, large ones block by block, and whether each ends a requested item."""
        for index, block in wanted:
            file = self.bundle.manifest.files[index]
            if block is None and file.size >= LARGE_BYTES:
                last = (file.size - 1) // BLOCK_BYTES
                yield from ((index, number, number == last) for number in range(last + 1))
            else:
                yield index, block, True


def _receive(session: Session) -> None:
    """Reads the agent's progress reports, so that it never waits for us. Raises AgentError."""
    try:
        while session.receive(timeout_s=0).type == "progress":
            pass
    except TimeoutError:
        pass


def raise_agents_reason(session: Session) -> None:
    """Raises the AgentError that the agent may have sent before the connection broke, if there is one."""
    try:
        while True:
            session.receive(timeout_s=1)
    except (ConnectionLost, TimeoutError):
        pass
