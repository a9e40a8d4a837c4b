"""Which files of the code directory belong to the bundle, and what they hold."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from dtctl.bundle.fingerprints import Fingerprints
from dtctl.bundle.ignore import NEVER_SENT, IgnoreRules
from dtctl.bundle.links import leads_outside
from dtctl.bundle.manifest import Bundle, FileEntry, Manifest
from dtctl.errors import PreflightError
from dtctl.places import own_directories

ScanReport = Callable[[int, int], None]
"""Called with the number of files seen and of bytes read so far, at most ten times a second."""

_BLOCK = 1 << 20
_IGNORE_HINT = "or leave it out with a line in .dtctlignore (or .gitignore)"
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}


def scan(
    code: Path, report: ScanReport | None = None, *, cluster: str = "", secret_files: Collection[Path] = ()
) -> Bundle:
    """The bundle that the directory `code` makes. Raises PreflightError for what cannot be sent.

    Only files that have changed since the last scan are read. `secret_files` are never sent, whatever the rules say,
    nor is what dtctl keeps for itself.
    """
    code = code.absolute()
    found = _Found(code, report, {os.path.realpath(path) for path in (*secret_files, *own_directories())})
    found.add_directory(code, "", IgnoreRules.above(code))
    for path in found.links:
        if leads_outside(path, found.links):
            raise PreflightError(
                f"{code / path} is a link that leads out of the code directory",
                detail=f"it leads to {found.links[path]}, which the hosts would not have",
                hint=f"put a copy in its place, {_IGNORE_HINT}",
            )
    if not found.files:
        raise PreflightError(
            f"there is no file to send in {code}",
            detail="everything in it is ignored" if found.skipped else "",
            hint="trainer.code names the directory of the training program",
        )
    found.fingerprints.save()
    manifest = Manifest(
        files=tuple(sorted(found.files)),
        links=tuple(sorted(found.links.items())),
        dirs=tuple(sorted(found.dirs)),
        cluster=cluster,
    )
    return Bundle(root=code, manifest=manifest, skipped=tuple(sorted(found.skipped)))


class _Found:
    """What a scan has met so far."""

    def __init__(self, code: Path, report: ScanReport | None, never: Collection[str]) -> None:
        """`never`: real paths that are not sent."""
        self._never = never
        self.files: list[FileEntry] = []
        self.links: dict[str, str] = {}
        self.dirs: list[tuple[str, int]] = []
        self.skipped: list[str] = []
        self.fingerprints = Fingerprints(code)
        self._report = report
        self._bytes_read = 0
        self._next_report = time.monotonic() + 0.1

    def add_directory(self, directory: Path, prefix: str, rules_above: IgnoreRules) -> None:
        """What lies in one directory and below; `prefix` is its path in the tree, "" or with a `/` at the end."""
        listed = _listed(directory)
        rules = rules_above.within(directory, prefix)
        for entry in listed:
            path = prefix + entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if entry.name in NEVER_SENT:
                continue
            if rules.ignores(path, is_directory) or os.path.realpath(entry.path) in self._never:
                self.skipped.append(_printable(path) + ("/" if is_directory else ""))
                continue
            _check_utf8(entry.name, f"the name of {_printable(entry.path)}")
            if entry.is_symlink():
                self.links[path] = _target(entry)
            elif is_directory:
                below = Path(entry.path)
                self.dirs.append((path, stat.S_IMODE(below.stat().st_mode) & 0o777))
                self.add_directory(below, path + "/", rules)
            else:
                self._add_file(entry, path)

    def _add_file(self, entry: os.DirEntry[str], path: str) -> None:
        found = _stat(entry)
        if not stat.S_ISREG(found.st_mode):
            kind = _KINDS.get(stat.S_IFMT(found.st_mode), "not a regular file")
            raise PreflightError(f"{entry.path} is {kind} and cannot be sent", hint=f"remove it, {_IGNORE_HINT}")
        sha256 = self.fingerprints.get(path, found)
        if sha256 is None:
            found, sha256 = self._read(entry.path)
            self.fingerprints.put(path, found, sha256)
        self.files.append(FileEntry(path, stat.S_IMODE(found.st_mode) & 0o777, found.st_size, sha256))
        self._tell()

    def _read(self, path: str) -> tuple[os.stat_result, str]:
        """What the file is and holds, of one moment."""
        hasher = hashlib.sha256()
        size = 0
        try:
            with Path(path).open("rb", buffering=0) as file:
                found = os.fstat(file.fileno())
                for block in _blocks(file.fileno()):
                    hasher.update(block)
                    size += len(block)
                    self._bytes_read += len(block)
                    self._tell()
        except OSError as error:
            raise PreflightError(
                f"cannot read {path}", detail=str(error.strerror), hint=f"chmod u+r {path}, {_IGNORE_HINT}"
            ) from error
        if size != found.st_size:
            raise PreflightError(f"{path} changed while it was read", hint=f"try again, {_IGNORE_HINT}")
        return found, hasher.hexdigest()

    def _tell(self) -> None:
        if self._report is not None and time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + 0.1
            self._report(len(self.files), self._bytes_read)


def _listed(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except NotADirectoryError as error:
        raise PreflightError(f"{directory} is not a directory", hint="trainer.code names a directory") from error
    except FileNotFoundError as error:
        raise PreflightError(f"there is no directory {directory}", hint="trainer.code names a directory") from error
    except OSError as error:
        raise PreflightError(
            f"cannot list {directory}", detail=str(error.strerror), hint=f"chmod u+rx {directory}, {_IGNORE_HINT}"
        ) from error


def _stat(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        raise PreflightError(f"cannot look at {entry.path}", detail=str(error.strerror), hint="try again") from error


def _target(entry: os.DirEntry[str]) -> str:
    target = os.readlink(entry.path)  # noqa: PTH115  Path would not keep it to the letter
    _check_utf8(target, f"what the link {entry.path} leads to")
    return target


def _check_utf8(text: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PreflightError(f"{what} is not UTF-8", hint=f"rename it, {_IGNORE_HINT}") from error


def _printable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _blocks(descriptor: int) -> Iterator[bytes]:
    while block := os.read(descriptor, _BLOCK):
        yield block
