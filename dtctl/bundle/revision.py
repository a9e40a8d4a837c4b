"""The commit of the code that is sent, and how the code differs from it.

All is read from the repository's files. `git` is not started, so nothing that the configuration of a repository names
is executed: no hook, filter, pager, monitor or textconv.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from dtctl.agent.host.secrets import Masks
from dtctl.bundle import Bundle, FileEntry
from dtctl.bundle.git_objects import Objects, Unreadable
from dtctl.bundle.ignore import common_directory, git_directory, index_entries
from dtctl.dataclass import dataclass
from dtctl.folder import read_regular
from dtctl.model import Revision

_REF_BYTES = 4096
_PACKED_REFS_BYTES = 1 << 26
_CONFIG_BYTES = 1 << 20
_MOST_REFS = 5
"""The most symbolic references in a row, as in git (refs.c)."""
_MOST_ENTRIES = 500_000
"""The most trees and entries of trees that are read of a commit."""
_PATHS_BYTES = 1 << 26
_INSPECT_S = 20.0
_DEEPEST = 100
_FILE_BYTES = 1 << 17
"""The size of the largest file whose lines are compared."""
_DIFF_BYTES = 1 << 19
_DIFF_S = 2.0
_MOST_PAIRS = 2_000_000
"""The most pairs of equal lines in two files: difflib goes through all of them for each match."""
_LARGEST_HASHED = 1 << 28
_SYMBOLIC, _SUBMODULE, _DIRECTORY = 0o120000, 0o160000, 0o040000
_LONGEST = 400
_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
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


class _Damaged(Exception):
    """What of the repository cannot be read; a clause."""


def inspect(bundle: Bundle, secrets: Iterable[str] = ()) -> Inspected | None:
    """The revision of the bundle's code; None outside of a repository. Never raises for a damaged repository.

    `secrets`: values to mask in the diff.
    """
    pointers = tuple(_pointers(bundle))
    repository = _find(bundle.root)
    if repository is None:
        return Inspected(Revision(), pointers=pointers) if pointers else None
    top, git = repository
    known = Revision()
    try:
        common = _common_of(top, git)
        commit, branch = _head(git, common)
        known = Revision(commit, branch, _remote(common, branch))
        until = time.monotonic() + _INSPECT_S
        with Objects(common / "objects", until) as objects:
            return _Comparison(bundle, top, git, objects, known, secrets, until).result(pointers)
    except (_Damaged, Unreadable) as why:
        note = str(why)
    except (OSError, ValueError, RecursionError) as error:
        note = f"the repository cannot be read: {getattr(error, 'strerror', None) or error}"
    revision = Revision(known.commit, known.branch, known.remote, note=_printable(note)[:_LONGEST])
    return Inspected(revision, pointers=pointers)


def _find(code: Path) -> tuple[Path, Path] | None:
    """The top of the repository, and its git directory."""
    for top in (code, *code.parents):
        if os.path.lexists(top / ".git"):
            try:
                return top, git_directory(top / ".git")
            except (OSError, ValueError):
                return top, top / ".git"
    return None


def _head(git: Path, common: Path) -> tuple[str, str]:
    """The commit and the branch. Raises _Damaged."""
    name, branch = "HEAD", ""
    for _ in range(_MOST_REFS):
        text = _ref(git if name == "HEAD" else common, name)
        if text is None and name == "HEAD":
            raise _Damaged("the repository has no HEAD")
        if text is None:
            packed = _packed_ref(common, name)
            return packed, branch
        if not text.startswith("ref:"):
            if not _NAME.match(text):
                raise _Damaged(f"{name} is damaged")
            return text, branch
        name = text.removeprefix("ref:").strip()
        if name == "refs/heads/.invalid":
            raise _Damaged("the repository keeps its references in a format that dtctl does not read (reftable)")
        if not name.startswith("refs/") or ".." in name.split("/"):
            raise _Damaged("HEAD is damaged")
        branch = branch or _printable(name.removeprefix("refs/heads/"))[:_LONGEST]
    raise _Damaged("HEAD is damaged: it leads to too many references")


def _ref(directory: Path, name: str) -> str | None:
    try:
        if name == "HEAD" and (directory / name).is_symlink():  # as git made it once
            return f"ref: {(directory / name).readlink()}"
        return read_regular(directory / name, _REF_BYTES).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _packed_ref(common: Path, name: str) -> str:
    """The commit of a packed reference; "" if there is none: the branch has no commit yet."""
    with suppress(FileNotFoundError):
        for line in read_regular(common / "packed-refs", _PACKED_REFS_BYTES).split(b"\n"):
            commit, _, ref = line.partition(b" ")
            if ref == name.encode() and _NAME.match(commit.decode("ascii", "replace")):
                return commit.decode("ascii")
    return ""


def _common_of(top: Path, git: Path) -> Path:
    """The git directory of the whole repository. Raises _Damaged unless both are those of `top`: a `.git` from
    elsewhere can name any other.
    """
    common = common_directory(git)
    own = top / ".git"
    if git.exists() and not _names(git, top):
        raise _Damaged(f"{own} leads to {git}, which does not name this directory")
    if common != git and git.resolve().parent != common.resolve() / "worktrees":
        raise _Damaged(f"{git} leads to {common}, of which it is no worktree")
    return common


def _names(git: Path, top: Path) -> bool:
    """Whether the git directory is within `top`, or names it as its worktree."""
    own = top / ".git"
    if own.is_dir() and not own.is_symlink():
        return True
    with suppress(OSError):  # of a worktree
        back = os.fsdecode(read_regular(git / "gitdir", _REF_BYTES).strip())
        if (git / back).resolve() == own.resolve():
            return True
    worktree = _config(git).get(("core", "worktree"))  # of a submodule
    return worktree is not None and (git / worktree).resolve() == top.resolve()


def _remote(common: Path, branch: str) -> str:
    """The URL of the branch's remote, or of `origin`."""
    values = _config(common)
    name = values.get((f'branch "{branch}"', "remote"), "origin")
    return without_credentials(values.get((f'remote "{name}"', "url"), ""))[:_LONGEST]


def _config(directory: Path) -> dict[tuple[str, str], str]:
    """Section and key -> value. Files that the configuration includes are not read."""
    try:
        lines = read_regular(directory / "config", _CONFIG_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    section, values = "", dict[tuple[str, str], str]()
    for line in (line.strip() for line in lines):
        if line.startswith("["):
            section = line.partition("]")[0][1:].strip()
        elif "=" in line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            values[section, key.strip().lower()] = value.strip().strip('"')
    return values


def without_credentials(url: str) -> str:
    """The URL of a remote without user names of HTTP, passwords and queries, which may all be tokens."""
    if "://" not in url:
        return Masks(()).hide_text(_printable(url))  # git@host:path, or a directory
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    user, at, host = parts.netloc.rpartition("@")
    named = user.partition(":")[0] + at if parts.scheme in ("ssh", "git+ssh", "ssh+git") else ""
    path = Masks(()).hide_text(parts.path)
    return _printable(urlunsplit((parts.scheme, named + host, path, "", "")))


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())


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
            self.known.commit, self.known.branch, self.known.remote, len(paths), len(untracked), note[:_LONGEST]
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
                raise _Damaged("the commit has too many files")
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
                raise _Damaged("comparing the files takes too long")
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
        shown = _printable(path)
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
        hunks = _unified(_lines(before), _lines(after), old, new)
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


_CONTEXT = 3


def between_differences(old: str, new: str) -> tuple[str, ...] | None:
    """The lines that differ between the differences of two trees from one commit; None if it would take long."""
    lines = _unified(old.splitlines(), new.splitlines(), "", "")
    return None if lines is None else tuple(line for line in lines[2:] if not line.startswith("@@ "))


def _unified(before: list[str], after: list[str], old: str, new: str) -> list[str] | None:
    """The unified diff; None if it would take long. difflib is quadratic in lines that are repeated."""
    most = min(len(before), len(after))
    head = next((at for at in range(most) if before[at] != after[at]), most)
    tail = next((at for at in range(most - head) if before[-1 - at] != after[-1 - at]), most - head)
    start, cut = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    before, after = before[start : len(before) - cut], after[start : len(after) - cut]
    times = Counter(after)
    if sum(times[line] for line in before) > _MOST_PAIRS:
        return None
    try:
        groups = list(_Matcher(None, before, after).get_grouped_opcodes(_CONTEXT))
    except TimeoutError:
        return None
    lines = [f"--- {old}\n", f"+++ {new}\n"] if groups else []
    for group in groups:
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        lines.append(f"@@ -{_range(start + i1, i2 - i1)} +{_range(start + j1, j2 - j1)} @@\n")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [f" {line}" for line in before[i1:i2]]
            else:
                lines += [f"-{line}" for line in before[i1:i2]]
                lines += [f"+{line}" for line in after[j1:j2]]
    return lines


class _Matcher(difflib.SequenceMatcher[str]):
    """It raises TimeoutError after a while: lines that are changed in turns take a pass through the file each."""

    _until: float | None = None

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        self._until = self._until or time.monotonic() + _DIFF_S
        if time.monotonic() > self._until:
            raise TimeoutError
        return super().find_longest_match(alo, ahi, blo, bhi)


def _range(before: int, count: int) -> str:
    """A range of lines as in a hunk's head: an empty one has the number of the line before it."""
    return f"{before + (count > 0)},{count}"


def _lines(data: bytes) -> list[str]:
    return [line + "\n" for line in data.decode("utf-8", "replace").split("\n")[:-1]] + (
        [last] if (last := data.decode("utf-8", "replace").rpartition("\n")[2]) else []
    )


def _blob(data: bytes, hash_bytes: int) -> str:
    """The name of a blob with this content."""
    hasher = hashlib.sha1(usedforsecurity=False) if hash_bytes == 20 else hashlib.sha256()
    hasher.update(b"blob %d\0" % len(data))
    hasher.update(data)
    return hasher.hexdigest()


_MOST_WALKED = 20_000


def commits_between(code: Path, old: str, new: str) -> tuple[list[str], list[str]] | None:
    """The commits that only `new` has, and those that only `old` has, newest first, as `12ab34cd5678 subject`.

    None if the repository of `code` does not have both, or if their history is too long.
    """
    repository = _find(code)
    if repository is None or not (_NAME.match(old) and _NAME.match(new)):
        return None
    try:
        common = _common_of(*repository)
        with Objects(common / "objects", time.monotonic() + _INSPECT_S) as objects:
            histories = [dict(_history(objects, start, _shallow(common))) for start in (old, new)]
    except (_Damaged, Unreadable, OSError, ValueError):
        return None
    before, after = histories
    return _only(after, before), _only(before, after)


def _only(history: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [f"{commit[:12]} {subject}" for commit, subject in history.items() if commit not in other]


def _shallow(common: Path) -> frozenset[str]:
    """The commits at which a shallow clone ends."""
    with suppress(OSError):
        return frozenset(read_regular(common / "shallow", _PACKED_REFS_BYTES).decode("ascii", "replace").split())
    return frozenset()


def _history(objects: Objects, start: str, ends: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The commits that are reachable, with their subjects. Raises Unreadable if they are too many."""
    seen, todo = {start}, deque([start])
    while todo:
        commit = todo.popleft()
        _, parents, subject = objects.commit(commit)
        yield commit, Masks(()).hide_text(_printable(subject))[:100]
        for parent in () if commit in ends else parents:
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
        if len(seen) > _MOST_WALKED:
            raise Unreadable("the history is too long")
