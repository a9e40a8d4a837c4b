"""Brings the code of a run back into a directory, as the run's hosts received it."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dtctl.agent.bundles.tree import MOST_BYTES, Manifest
from dtctl.agent.host.errors import Refused
from dtctl.agent.rooms.code.records import CodePart, CodeResult
from dtctl.bundle.scanning import leads_outside
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, UsageError
from dtctl.operations.client import about, final, frames_of, request
from dtctl.operations.run_record import RunRecord
from dtctl.transport.seam import Transport

_OWN = 0o700
"""The permissions of its owner, without which a directory cannot be written."""


@dataclass(frozen=True)
class Restored:
    """`host`: the one that sent the code."""

    run: str
    bundle: str
    host: str
    directory: Path
    files: int
    size_bytes: int


def restore(record: RunRecord, transport: Transport, directory: Path) -> Restored:
    """Asks one host after the other until one has sent all of it. Raises UsageError for a directory with content.

    Every byte is verified by the SHA-256 of the manifest, whose own is the bundle's id, before `directory` exists.
    """
    assert record.run is not None
    _refuse_content(directory)
    failed: list[DtctlError] = []
    for host in record.task_hosts:
        try:
            with _beside(directory) as place:
                found = _Arriving(record, transport, host, place).restored(directory)
                place.rename(directory)  # an empty directory is replaced
                return found
        except UsageError:
            raise
        except DtctlError as error:
            failed.append(error)
        except OSError as error:
            _refuse_content(directory)
            raise DtctlError(f"cannot write {directory}", detail=str(error.strerror)) from error
    raise failed[0] if failed else DtctlError(f"no host of run {record.run} is known here")


def _refuse_content(directory: Path) -> None:
    if os.path.lexists(directory) and (directory.is_symlink() or not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} exists, and is not an empty directory", hint="name another directory")


@contextmanager
def _beside(directory: Path) -> Iterator[Path]:
    """A new directory on the same file system, which is removed unless it was renamed."""
    parent = directory.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"there is no directory {parent}", hint=f"mkdir -p {parent}")
    place = Path(tempfile.mkdtemp(prefix=f".{directory.name[:100]}.", dir=parent))
    try:
        yield place
    finally:
        if place.exists():
            for below, _, _ in os.walk(place):
                Path(below).chmod(_OWN)
            shutil.rmtree(place)


class _Arriving:
    """What one host sends of the code, into the empty directory `place`."""

    def __init__(self, record: RunRecord, transport: Transport, host: str, place: Path) -> None:
        self._record = record
        self._transport = transport
        self._host = host
        self._place = place
        self._text = bytearray()
        self._manifest: Manifest | None = None
        self._next = 0
        self._descriptor = -1
        self._size = 0
        self._hash = hashlib.sha256()

    def restored(self, directory: Path) -> Restored:
        try:
            with closing(self._transport.open(self._record.route_to(self._host))) as session:
                session.send(request(self._record, session.host, "code"))
                for message in frames_of(session, "code_part", most_bytes=None):
                    if message.type == "code_part":
                        with about(self._host, "sent an invalid `code_part`"):
                            self._take(message.of(CodePart)["file"], message.payload)
                answer = final(self._record, session, "code", message, CodeResult)
            manifest = self._known(answer["bundle"])
            self._finish_until(len(manifest.files))
            self._shape(manifest)
        finally:
            if self._descriptor >= 0:
                os.close(self._descriptor)
        size = sum(size for _, _, size, _ in manifest.files)
        return Restored(answer["run"], answer["bundle"], self._host, directory, len(manifest.files), size)

    def _take(self, number: int | None, data: bytes) -> None:
        if number is None:
            self._text += data
            if self._manifest is not None or len(self._text) > MOST_BYTES:
                raise self._wrong("its manifest does not end")
            return
        manifest = self._known(None)
        if not self._next - 1 <= number < len(manifest.files):
            raise self._wrong("its files are not in order")
        if number >= self._next:
            self._finish_until(number)
            self._begin()
        self._size += len(data)
        if self._size > manifest.files[number][2]:
            raise self._wrong(f"{manifest.files[number][0]!r} is too large")
        self._hash.update(data)
        _write(self._descriptor, data)

    def _known(self, bundle: str | None) -> Manifest:
        """The manifest. `bundle`: the id that it must have."""
        digest = hashlib.sha256(self._text).hexdigest()
        if self._manifest is None:
            try:
                self._manifest = Manifest.parse(bytes(self._text), digest)
            except Refused as error:
                raise self._wrong(str(error)) from error
            for path, mode in self._manifest.dirs:
                (self._place / path).mkdir(mode=mode | _OWN)
        if bundle is not None and bundle != digest:
            raise self._wrong("its manifest is not that of the bundle")
        return self._manifest

    def _begin(self) -> None:
        assert self._manifest is not None
        path, mode, _, _ = self._manifest.files[self._next]
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._place / path, flags, 0o600)
        os.fchmod(self._descriptor, mode)
        self._size, self._hash = 0, hashlib.sha256()
        self._next += 1

    def _finish_until(self, number: int) -> None:
        """Verifies the file that has arrived, and makes those before `number`, which are empty."""
        assert self._manifest is not None
        while True:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                path, _, size, sha256 = self._manifest.files[self._next - 1]
                if self._size != size or self._hash.hexdigest() != sha256:
                    raise self._wrong(f"{path!r} is not as it was pushed")
            if self._next >= number:
                return
            self._begin()

    def _shape(self, manifest: Manifest) -> None:
        """Links are made last: nothing is ever written through one."""
        links = dict(manifest.links)
        for path, target in manifest.links:
            if leads_outside(path, links):
                raise self._wrong(f"the link {path!r} leads outside")
            (self._place / path).symlink_to(target)
        for path, mode in reversed(manifest.dirs):
            (self._place / path).chmod(mode)
        self._place.chmod(0o777 & ~_umask())

    def _wrong(self, what: str) -> DtctlError:
        return DtctlError(f"{self._host}: the code of run {self._record.run} is refused", detail=what)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
