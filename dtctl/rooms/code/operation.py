"""Brings the code of a run back into a directory, as the run's hosts received it."""

from __future__ import annotations

import hashlib
import os
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from dtctl.agent.bundles.tree import MOST_BYTES, Manifest
from dtctl.agent.host.errors import Refused
from dtctl.agent.rooms.code.records import CodePart, CodeResult
from dtctl.bundle import FileEntry
from dtctl.bundle import Manifest as SentManifest
from dtctl.bundle.scanning import leads_outside
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, UsageError
from dtctl.folder import PRIVATE, Folder, temporary_folder
from dtctl.operations.client import about, final, frames_of, request
from dtctl.operations.history import CodeRecord
from dtctl.operations.run_record import RunRecord
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class Restored:
    """`host`: the one that sent the code."""

    run: str
    bundle: str
    host: str
    directory: Path
    files: int
    size_bytes: int
    is_as_sent: bool
    """Whether this machine started the run, and the code is what it sent; else `host` alone says so."""


def restore(record: RunRecord, transport: Transport, directory: Path, known: CodeRecord | None = None) -> Restored:
    """Asks one host after the other until one has sent all of it. Raises UsageError for a directory with content.

    Every file is verified by its SHA-256 in the manifest before `directory` exists, and the manifest by what this
    machine has sent, `known`. Without that the host alone says what the code of the run is.
    """
    assert record.run is not None
    directory = Path(os.path.abspath(directory))  # noqa: PTH100 (`.` and `..` have no names)
    if directory.is_dir() and directory.samefile(Path.cwd()):
        raise UsageError(f"{directory} is the working directory", hint="name another directory")
    _refuse_content(directory)
    if not directory.parent.is_dir():
        raise UsageError(f"there is no directory {directory.parent}", hint=f"mkdir -p {directory.parent}")
    failed: list[DtctlError] = []
    for host in record.task_hosts:
        try:
            with (
                Folder(directory.parent, record.project) as parent,
                temporary_folder(f".{directory.name[:100]}.", parent.path) as place,
            ):
                found = _Receiver(record, transport, host, place, known).restored(directory)
                parent.move(place.path.name, parent, directory.name, overwrite=True)  # what is replaced is empty
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


class _Receiver:
    """What one host sends of the code, into the empty folder `place`."""

    def __init__(
        self, record: RunRecord, transport: Transport, host: str, place: Folder, known: CodeRecord | None
    ) -> None:
        self._record = record
        self._transport = transport
        self._host = host
        self._place = place
        self._known = known
        self._text = bytearray()
        self._manifest: Manifest | None = None
        self._next = 0
        self._file: BinaryIO | None = None
        self._size = 0
        self._hash = hashlib.sha256()

    def restored(self, directory: Path) -> Restored:
        try:
            with closing(self._transport.open(self._record.route_to(self._host))) as session:
                session.send(request(self._record, session.host, "code"))
                for message in frames_of(session, "code_part", most_bytes=None):
                    if message.type == "code_part":
                        with about(self._host, "sent an invalid `code_part`"):
                            self._receive(message.of(CodePart)["file"], message.payload)
                answer = final(self._record, session, "code", message, CodeResult)
            manifest = self._manifest_of(answer["bundle"])
            self._finish_until(len(manifest.files))
            self._finish_tree(manifest)
        finally:
            if self._file is not None:
                self._file.close()
        size = sum(size for _, _, size, _ in manifest.files)
        files = len(manifest.files)
        return Restored(answer["run"], answer["bundle"], self._host, directory, files, size, self._known is not None)

    def _receive(self, number: int | None, data: bytes) -> None:
        if not data:
            raise self._refused("it sent an empty part")
        if number is None:
            self._text += data
            if self._manifest is not None or len(self._text) > MOST_BYTES:
                raise self._refused("its manifest does not end")
            return
        manifest = self._manifest_of(None)
        if not self._next - 1 <= number < len(manifest.files):
            raise self._refused("its files are not in order")
        if number >= self._next:
            self._finish_until(number)
            self._begin()
        self._size += len(data)
        if self._size > manifest.files[number][2]:
            raise self._refused(f"{manifest.files[number][0]!r} is too large")
        self._hash.update(data)
        assert self._file is not None
        self._file.write(data)

    def _manifest_of(self, bundle: str | None) -> Manifest:
        """The manifest. `bundle`: the id that it must have."""
        digest = hashlib.sha256(self._text).hexdigest()
        if self._manifest is None:
            try:
                self._manifest = Manifest.parse(bytes(self._text), digest)
            except Refused as error:
                raise self._refused(str(error)) from error
            self._refuse_other_code(self._manifest)
            self._place.refuse_without_room(sum(size for _, _, size, _ in self._manifest.files))
            for path, _ in self._manifest.dirs:
                with self._place.below(path, make=PRIVATE):
                    pass
        if bundle is not None and bundle != digest:
            raise self._refused("its manifest is not that of the bundle")
        return self._manifest

    def _refuse_other_code(self, manifest: Manifest) -> None:
        """The host chooses the manifest and its id, so these alone prove nothing."""
        files = tuple(FileEntry(*file) for file in manifest.files)
        sent = SentManifest(files, tuple(manifest.links), tuple(manifest.dirs))
        if self._known is not None and self._known.id != sent.code_id:
            raise self._refused("it is not the code with which this machine started the run")

    def _begin(self) -> None:
        assert self._manifest is not None
        path, mode, _, _ = self._manifest.files[self._next]
        above, _, name = path.rpartition("/")
        with self._place.below(above) as folder:
            self._file = folder.new(name)
        os.fchmod(self._file.fileno(), mode)
        self._size, self._hash = 0, hashlib.sha256()
        self._next += 1

    def _finish_until(self, number: int) -> None:
        """Verifies the file that has arrived, and makes those before `number`, which are empty."""
        assert self._manifest is not None
        while True:
            if self._file is not None:
                self._file.close()
                self._file = None
                path, _, size, sha256 = self._manifest.files[self._next - 1]
                if self._size != size or self._hash.hexdigest() != sha256:
                    raise self._refused(f"{path!r} is not as it was pushed")
            if self._next >= number:
                return
            self._begin()

    def _finish_tree(self, manifest: Manifest) -> None:
        """Links are made last: nothing is ever written through one."""
        links = dict(manifest.links)
        for path, target in manifest.links:
            if leads_outside(path, links):
                raise self._refused(f"the link {path!r} leads outside")
            above, _, name = path.rpartition("/")
            with self._place.below(above) as folder:
                folder.link(name, target)
        for path, mode in reversed(manifest.dirs):
            (self._place.path / path).chmod(mode)
        self._place.path.chmod(0o777 & ~_umask())

    def _refused(self, what: str) -> DtctlError:
        return DtctlError(f"{self._host}: the code of run {self._record.run} is refused", detail=what)


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
