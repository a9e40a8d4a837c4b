"""The commit of the code that is sent, and how the code differs from it.

All is read from the repository's files. `git` is not started, so nothing that the configuration of a repository names
is executed: no hook, filter, pager, monitor or textconv.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from pathlib import Path

from dtctl.agent.host.secrets import Masks
from dtctl.bundle import Bundle, FileEntry
from dtctl.bundle.git_objects import Objects, Unreadable
from dtctl.bundle.git_repository import INSPECT_S, LONGEST, Damaged, common_of, find, head, printable, remote_of
from dtctl.bundle.ignore import index_entries
from dtctl.dataclass import dataclass
from dtctl.folder import read_regular
from dtctl.model import Revision

_MOST_ENTRIES = 500_000
"""The most trees and entries of trees that are read of a commit."""
_PATHS_BYTES = 1 << 26
_DEEPEST = 100
_FILE_BYTES = 1 << 17
"""The size of the largest file whose lines are compared."""
_DIFF_BYTES = 1 << 19
_DIFF_S = 2.0
_LARGEST_HASHED = 1 << 28
_SYMBOLIC, _SUBMODULE, _DIRECTORY = 0o120000, 0o160000, 0o040000
_LFS_BYTES = 1024
_LFS = b"version https://git-lfs.github.com/spec/v1\n"
_LFS_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True)
class Inspected:
    """The revision of a bundle, with what only its controller keeps."""

    revision: Revision
    diff: str = ""
    """A unified diff from the commit to the code that is sent; secrets are masked."""
    changed: tuple[str, ...] = ()
    """The changed paths, each relative to the code directory."""
    pointers: tuple[str, ...] = ()
    """Files that are only pointers of Git LFS."""
    empty_submodules: tuple[str, ...] = ()


def inspect(bundle: Bundle, secrets: Iterable[str] = ()) -> Inspected | None:
    """The revision of the bundle's code; None outside of a repository. Never raises for a damaged repository.

    `secrets`: values to mask in the diff.
    """
    pointers = tuple(_pointers(bundle))
    repository = find(bundle.root)
    if repository is None:
        return Inspected(Revision(), pointers=pointers) if pointers else None
    top, git = repository
    known = Revision()
    try:
        common = common_of(top, git)
        commit, branch = head(git, common)
        known = Revision(commit, branch, remote_of(common, branch))
        until = time.monotonic() + INSPECT_S
        with Objects(common / "objects", until) as objects:
            return _Comparison(bundle, top, git, objects, known, secrets, until).result(pointers)
    except (Damaged, Unreadable) as why:
        note = str(why)
    except (OSError, ValueError, RecursionError) as error:
        note = f"the repository cannot be read: {getattr(error, 'strerror', None) or error}"
    revision = Revision(known.commit, known.branch, known.remote, note=printable(note)[:LONGEST])
    return Inspected(revision, pointers=pointers)


def _pointers(bundle: Bundle) -> Iterator[str]:
    """Files of the bundle that are only pointers of Git LFS. Only files of a pointer's size are read."""
    for file in bundle.manifest.files:
        if 100 < file.size < 200 and file.path.rpartition(".")[2] not in ("py", "sh", "yaml", "toml"):
            with suppress(OSError):
                if read_regular(bundle.root / file.path, _LFS_BYTES).startswith(_LFS):
                    yield file.path


@dataclass
class _Comparison:
    """Compares the files that are sent with those of the commit."""

    bundle: Bundle
    top: Path
    git: Path
    objects: Objects
    known: Revision
    secrets: Iterable[str]
    until: float
    """The end of the comparison, on the monotonic clock."""
    unread: list[str] = field(default_factory=list)

    def result(self, pointers: tuple[str, ...]) -> Inspected:
        committed, submodules = self._committed() if self.known.commit else ({}, [])
        code = self._within()
        changed = sorted(self._changed(committed, code))
        gone = [path for path in committed if path not in self._sent and not os.path.lexists(self.bundle.root / path)]
        paths = sorted({*changed, *gone})
        untracked = [path for path in changed if path not in committed]
        diff, note = self._diff(paths, committed)
        if self.known.commit == "":
            note = "the branch has no commit yet"
        revision = Revision(
            self.known.commit, self.known.branch, self.known.remote, len(paths), len(untracked), note[:LONGEST]
        )
        return Inspected(revision, diff, tuple(paths), pointers, tuple(submodules))

    @cached_property
    def _sent(self) -> Mapping[str, FileEntry | str]:
        manifest = self.bundle.manifest
        return {**{file.path: file for file in manifest.files}, **dict(manifest.links)}

    def _within(self) -> str:
        """The code directory's path in the repository, "" or with a trailing `/`."""
        within = self.bundle.root.relative_to(self.top).as_posix()
        return "" if within == "." else within + "/"

    def _committed(self) -> tuple[dict[str, tuple[int, str]], list[str]]:
        """Path relative to the code directory -> mode and blob, and the submodules that are empty here."""
        tree, _, _ = self.objects.commit(self.known.commit)
        for name in filter(None, self._within().split("/")):
            inner = [one for one in self.objects.tree(tree) if one.name == os.fsencode(name)]
            if not inner or inner[0].mode != _DIRECTORY:
                return {}, []  # the directory is not in the commit
            tree = inner[0].id
        found: dict[str, tuple[int, str]] = {}
        submodules: list[str] = []
        todo = [("", tree, 0)]
        read = size_bytes = 0
        while todo:
            prefix, tree, depth = todo.pop()
            entries = self.objects.tree(tree)
            read += 1 + len(entries)
            size_bytes += sum(len(prefix) + len(entry.name) for entry in entries)
            if depth > _DEEPEST or read > _MOST_ENTRIES or size_bytes > _PATHS_BYTES:
                raise Damaged("the commit has too many files")
            for entry in entries:
                path = prefix + os.fsdecode(entry.name)
                if entry.mode == _DIRECTORY:
                    todo.append((path + "/", entry.id, depth + 1))
                elif entry.mode == _SUBMODULE:
                    with suppress(OSError):
                        if not any((self.bundle.root / path).iterdir()):
                            submodules.append(path)
                else:
                    found[path] = (entry.mode, entry.id)
        return found, sorted(submodules)

    def _changed(self, committed: Mapping[str, tuple[int, str]], within: str) -> Iterator[str]:
        hash_bytes = len(self.known.commit) // 2 or 20
        index, written_ns = index_entries(self.git, hash_bytes)
        root = f"{self.bundle.root}/"
        modules = self._submodules()
        for path, target in self.bundle.manifest.links:
            if path.startswith(modules):
                continue
            if committed.get(path) != (_SYMBOLIC, _blob(os.fsencode(target), hash_bytes)):
                yield path
        for file in self.bundle.manifest.files:
            if file.path.startswith(modules):
                continue
            if (there := committed.get(file.path)) is None:
                yield file.path
                continue
            mode, blob = there
            if mode == _SYMBOLIC or bool(mode & 0o100) != bool(file.mode & 0o100):
                yield file.path
                continue
            entry = index.get(within + file.path)
            if entry is not None and entry.size == file.size & 0xFFFFFFFF:
                with suppress(OSError):
                    found = os.lstat(root + file.path)
                    # As in git: a file that was changed after the index was written may have kept its time.
                    same_times = (entry.mtime_ns, entry.ctime_ns) == (found.st_mtime_ns, found.st_ctime_ns)
                    if same_times and entry.mtime_ns < written_ns:
                        if entry.blob != blob:
                            yield file.path
                        continue
            if time.monotonic() > self.until:
                raise Damaged("comparing the files takes too long")
            if not self._is_content(file, blob, hash_bytes):
                yield file.path

    def _submodules(self) -> tuple[str, ...]:
        """Directories with repositories of their own: their files belong to other commits."""
        root = self.bundle.root
        dirs = (path for path, _ in self.bundle.manifest.dirs)
        return tuple(f"{path}/" for path in dirs if os.path.lexists(root / path / ".git"))

    def _is_content(self, file: FileEntry, blob: str, hash_bytes: int) -> bool:
        """Whether the file is this blob, as it is, with the line ends of Windows, or in place of a pointer of LFS."""
        try:
            if file.size > _LARGEST_HASHED:
                raise OSError
            data = read_regular(self.bundle.root / file.path, file.size)
        except OSError:
            data = None
        if data is not None:
            if _blob(data, hash_bytes) == blob:
                return True
            if b"\r\n" in data and _blob(data.replace(b"\r\n", b"\n"), hash_bytes) == blob:
                return True
        if file.size > 100:
            with suppress(Unreadable):
                oid = _LFS_OID.search(self.objects.read(blob, "blob", _LFS_BYTES))
                return oid is not None and oid[1].decode() == file.sha256
        return False

    def _diff(self, paths: Sequence[str], committed: Mapping[str, tuple[int, str]]) -> tuple[str, str]:
        """The diff, and what it does not contain."""
        until = time.monotonic() + _DIFF_S
        pieces: list[str] = []
        size = 0
        for number, path in enumerate(paths):
            if size > _DIFF_BYTES or time.monotonic() > until:
                return self._masked(pieces), f"the diff has only {number} of the {len(paths)} files that differ"
            piece = self._difference(path, committed.get(path))
            size += len(piece)
            pieces.append(piece)
        return self._masked(pieces), ""

    def _masked(self, pieces: Iterable[str]) -> str:
        return Masks(self.secrets).hide_text("".join(pieces))

    def _difference(self, path: str, there: tuple[int, str] | None) -> str:
        shown = printable(path)
        before, after = self._before(there), self._after(path)
        mode = there[0] if there else 0
        lines = [f"diff --git a/{shown} b/{shown}\n"]
        sent = self._sent.get(path)
        now = 0 if sent is None else _SYMBOLIC if isinstance(sent, str) else 0o100755 if sent.mode & 0o100 else 0o100644
        if not mode:
            lines.append(f"new file mode {now:o}\n")
        elif not now:
            lines.append(f"deleted file mode {mode:o}\n")
        elif mode != now:
            lines.append(f"old mode {mode:o}\nnew mode {now:o}\n")
        if before is None or after is None:
            return "".join([*lines, "too large to compare\n"])
        if before == after:
            return "".join(lines)
        if b"\0" in before[:8000] or b"\0" in after[:8000]:
            return "".join([*lines, f"Binary files a/{shown} and b/{shown} differ\n"])
        old, new = f"a/{shown}" if mode else "/dev/null", f"b/{shown}" if now else "/dev/null"
        from dtctl.bundle.unified_diff import lines_of, unified  # most code is that of its commit

        hunks = unified(lines_of(before), lines_of(after), old, new)
        if hunks is None:
            return "".join([*lines, "too large to compare\n"])
        for line in hunks:
            lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
        return "".join(lines)

    def _before(self, there: tuple[int, str] | None) -> bytes | None:
        if there is None:
            return b""
        try:
            return self.objects.read(there[1], "blob", _FILE_BYTES)
        except Unreadable:
            return None

    def _after(self, path: str) -> bytes | None:
        sent = self._sent.get(path)
        if sent is None:
            return b""
        if isinstance(sent, str):
            return os.fsencode(sent)
        try:
            data = read_regular(self.bundle.root / path, _FILE_BYTES)
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == sent.sha256 else None


def _blob(data: bytes, hash_bytes: int) -> str:
    """The name of a blob with this content."""
    hasher = hashlib.sha1(usedforsecurity=False) if hash_bytes == 20 else hashlib.sha256()
    hasher.update(b"blob %d\0" % len(data))
    hasher.update(data)
    return hasher.hexdigest()
