"""Which files of the code directory belong to the bundle, and their content."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from dtctl.agent.records.values import BLOCK_BYTES, LARGE_BYTES
from dtctl.bundle import OWN, Bundle, FileEntry, LeftOut, Manifest
from dtctl.bundle.entries import (
    IGNORE_HINT,
    Fingerprints,
    OwnSecrets,
    check_file,
    check_utf8,
    listed,
    open_directory,
    printable,
    stat_entry,
    target_of,
)
from dtctl.bundle.ignore import IgnoreRules, is_never_sent
from dtctl.errors import PreflightError
from dtctl.folder import open_regular
from dtctl.paths import own_directories
from dtctl.secret_files import needs_a_look, rule_of_content, rule_of_name

ScanReport = Callable[[int, int], None]
"""Called with the number of files seen and of bytes read so far, at most ten times a second."""

_REPOSITORY = {"HEAD", "config", "objects", "refs"}
"""The entries of a bare git repository; its config holds the logins of remotes."""


class Unread(Exception):
    """A file has changed since the last scan, and reading was not allowed."""


def scan(
    code: Path,
    report: ScanReport | None = None,
    *,
    cluster: str = "",
    secret_files: Collection[Path] = (),
    without: Collection[Path] = (),
    data: bool = False,
    read: bool = True,
) -> Bundle:
    """The bundle of the directory `code`. Raises PreflightError for a file that cannot be sent.

    Only files that have changed since the last scan are read; without `read` such a file raises Unread. `secret_files`,
    the directories `without` and dtctl's own files are never sent, whatever their names and the rules are; what looks
    like a secret is sent only if the user requests it. `data`: no `.gitignore` rules.
    """
    code = code.absolute()
    what, setting = ("data", "data.from") if data else ("code", "trainer.code")
    found = _Found(code, report, OwnSecrets(secret_files, (*own_directories(), *without)), reads=read, data=data)
    try:
        found.add_all(IgnoreRules.own() if data else IgnoreRules.above(code), setting)
    except BaseException:
        found.fingerprints.save(partly=True)
        raise
    for path in found.links:
        if leads_outside(path, found.links):
            raise PreflightError(
                f"{code / path} is a link to a target outside the {what} directory",
                detail=f"its target is {found.links[path]}, which is not sent",
                hint=f"put a copy in its place, {IGNORE_HINT}",
            )
    if not found.files:
        raise PreflightError(
            f"{code} contains no file to send",
            detail="everything in it is ignored" if found.skipped or found.withheld else "",
            hint=f"{setting} names the directory of the {'data' if data else 'training program'}",
        )
    found.fingerprints.save()
    manifest = Manifest(
        files=tuple(sorted(found.files)),
        links=tuple(sorted(found.links.items())),
        dirs=tuple(sorted(found.dirs)),
        cluster=cluster,
    )
    return Bundle(
        root=code,
        manifest=manifest,
        skipped=tuple(sorted(found.skipped)),
        withheld=tuple(sorted(found.withheld)),
        twins=tuple(sorted(found.twins)),
        digests=found.digests,
    )


class _Found:
    def __init__(
        self, code: Path, report: ScanReport | None, own: OwnSecrets, *, reads: bool = True, data: bool = False
    ) -> None:
        self._code = code
        self._is_data = data
        self._reads = reads
        self._real_code = f"{code.resolve()}/"
        """Rules of secret files apply to whole paths: if ~/.config is the code directory, gcloud/ is in it."""
        self._own = own
        self.files: list[FileEntry] = []
        self.links: dict[str, str] = {}
        self.dirs: list[tuple[str, int]] = []
        self.skipped: list[LeftOut] = []
        self.withheld: list[LeftOut] = []
        self.twins: list[str] = []
        self.digests: dict[str, bytes] = {}
        self.fingerprints = Fingerprints(code, data=data)
        self._report = report
        self._bytes_read = 0
        self._next_report = time.monotonic() + 0.1

    def add_all(self, rules: IgnoreRules, setting: str) -> None:
        self._add_directory(open_directory(self._code, str(self._code), setting=setting), "", rules)

    def _add_directory(self, descriptor: int, prefix: str, rules_above: IgnoreRules) -> None:
        """Adds the content of a directory; `prefix` is its path in the tree, "" or with a trailing `/`.

        It walks by descriptors from the top, so that a directory replaced by a link leads nowhere else.
        """
        try:
            directory = self._code / prefix
            entries = listed(descriptor, str(directory))
            rules = rules_above.within(directory, prefix)
            is_repository = {entry.name for entry in entries} >= _REPOSITORY
            for entry in entries:
                if is_repository and entry.name == "config":
                    self.withheld.append(LeftOut(prefix + entry.name, "config of a git repository"))
                elif not is_never_sent(entry.name):
                    self._add(entry, descriptor, prefix + entry.name, rules)
        finally:
            os.close(descriptor)

    def _add(self, entry: os.DirEntry[str], parent: int, path: str, rules: IgnoreRules) -> None:
        is_directory = entry.is_dir(follow_symlinks=False)
        shown = printable(path) + "/" * is_directory
        if ignored := rules.rule_against(path, is_directory):
            self.skipped.append(LeftOut(shown, ignored))
            return
        found = stat_entry(entry, self._place(path))
        if self._own.include(found, entry):
            if is_directory or self._own.name(self._place(path)):
                self.skipped.append(LeftOut(shown, OWN))
            else:
                self.twins.append(shown)
        elif (rule := rule_of_name(self._real_code + path, is_directory)) and not rules.sends(
            path, is_directory, alike=_beside(path)
        ):
            self.withheld.append(LeftOut(shown, rule))
        else:
            self._add_what_belongs(entry, parent, path, rules, found)

    def _add_what_belongs(
        self, entry: os.DirEntry[str], parent: int, path: str, rules: IgnoreRules, found: os.stat_result
    ) -> None:
        check_utf8(entry.name, "the name of " + printable(self._place(path)))
        if stat.S_ISLNK(found.st_mode):
            self.links[path] = target_of(entry, parent, self._place(path))
        elif stat.S_ISDIR(found.st_mode):
            self.dirs.append((path, stat.S_IMODE(found.st_mode) & 0o777))
            self._add_directory(open_directory(entry.name, self._place(path), parent), path + "/", rules)
        else:
            self._add_file(found, parent, path, rules)

    def _add_file(self, found: os.stat_result, parent: int, path: str, rules: IgnoreRules) -> None:
        check_file(found, self._place(path))
        sha256 = self.fingerprints.get(path, found)
        if sha256 is None:
            if not self._reads:
                raise Unread
            found, sha256, start = self._read(parent, path)
            # Only harmless files are cached: a key that is sent today is inspected again tomorrow.
            rule = rule_of_content(path, start, data=self._is_data)
            if not rule:
                self.fingerprints.put(path, found, sha256)
            elif not rules.sends(path, False, alike=_beside(path, any_ending=needs_a_look(path))):
                self.withheld.append(LeftOut(printable(path), rule))
                return
        if self._own.hold(sha256):
            self.twins.append(printable(path))
            return
        self.files.append(FileEntry(path, stat.S_IMODE(found.st_mode) & 0o777, found.st_size, sha256))
        self._report_progress()

    def _read(self, parent: int, path: str) -> tuple[os.stat_result, str, bytes]:
        """The file's status and SHA-256, both of the same moment, and its first block."""
        hasher = hashlib.sha256()
        digests = bytearray()
        size = 0
        start = b""
        place = self._place(path)
        try:
            descriptor = open_regular(path.rpartition("/")[2], follow=False, dir_fd=parent)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                found = os.fstat(descriptor)
                for block in _blocks(file.fileno(), found.st_size):
                    start = start or block
                    hasher.update(block)
                    if found.st_size >= LARGE_BYTES:
                        digests += hashlib.sha256(block).digest()
                    size += len(block)
                    self._bytes_read += len(block)
                    self._report_progress()
        except OSError as error:
            raise PreflightError(
                f"cannot read {place}", detail=str(error.strerror), hint=f"chmod u+r {place}, {IGNORE_HINT}"
            ) from error
        if size != found.st_size:
            raise PreflightError(f"{place} changed while it was read", hint=f"try again, {IGNORE_HINT}")
        if digests:
            self.digests[path] = bytes(digests)
        return found, hasher.hexdigest(), start

    def _place(self, path: str) -> str:
        return f"{self._code}/{path}"  # a Path for each file would take half of a scan's time

    def _report_progress(self) -> None:
        if self._report is not None and time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + 0.1
            self._report(len(self.files), self._bytes_read)


def _beside(path: str, *, any_ending: bool = True) -> str:
    """A path that differs from this one only in the name, which is harmless."""
    directory, slash, name = path.rpartition("/")
    ending = "" if any_ending else PurePosixPath(name).suffix
    return f"{directory}{slash}{'.' if name.startswith('.') else ''}harmless{ending}"


def _blocks(descriptor: int, size: int) -> Iterator[bytes]:
    """Reads at most a block beyond the size: a file may grow as fast as it is read."""
    while size >= 0 and (block := os.read(descriptor, BLOCK_BYTES)):
        size -= len(block)
        yield block


_MOST_LINKS = 40
"""The most links that Linux follows in one path."""


def leads_outside(path: str, links: Mapping[str, str]) -> bool:
    """Whether the link `path`, followed as the kernel does, ever leaves the tree.

    `links` are all links of the tree: {path: target}. A target need not exist, and a link that leads back to itself
    stays inside.
    """
    here = path.split("/")[:-1]
    todo = links[path].split("/")[::-1]
    if links[path].startswith("/"):
        return True
    followed = 0
    while todo:
        word = todo.pop()
        if word in ("", "."):
            continue
        if word == "..":
            if not here:
                return True
            here.pop()
            continue
        here.append(word)
        target = links.get("/".join(here))
        if target is not None:
            followed += 1
            if followed > _MOST_LINKS:
                return False
            if target.startswith("/"):
                return True
            here.pop()
            todo += target.split("/")[::-1]
    return False
