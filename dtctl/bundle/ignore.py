"""Which files of the code directory are not sent: rules in the language of gitignore(5), and their scope.

With a `.dtctlignore` at the top of the code directory, the files of that name apply; else those named `.gitignore`,
including those above the code directory up to the top of its repository, and below them the repository's
`info/exclude` and the user's own `core.excludesFile`, as git has it. A `.dtctlignore` of nothing but `!` lines makes
exceptions: the `.gitignore` files still apply, and it overrides them. A rule of a deeper file wins, and within one file
the last. A file that git tracks is sent even if a `.gitignore` names it, because git does not ignore it either.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from dtctl.bundle.entries import printable
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.folder import open_regular, read_regular

_NEVER_SENT = frozenset({".git", "__pycache__"})
_REPORT = re.compile(r".+-\d{8}-\d{6}-[0-9a-f]{4}\.(?:html|md)")
"""The names of reports that `dtctl report` writes into the directory of cluster.yaml, most often that of the code."""
OWN_FILE = ".dtctlignore"
_OF_GIT = ".gitignore"
_LIMIT_BYTES = 4_000_000
MOST_DEEP = 16
"""The most `**` in one pattern."""
_ANY = "[^/]*"
"""The regular expression that pathspec makes of a star."""
_MANY = 3
_STAR = "star"


def is_never_sent(name: str) -> bool:
    """Whether files of this name are never sent, regardless of the rules: they are no code, or are made from it."""
    return name in _NEVER_SENT or _REPORT.fullmatch(name) is not None


@dataclass(frozen=True)
class _Rule:
    pattern: Any
    """A RegexPattern of pathspec, made without the `/` at its end."""
    directories_only: bool
    shown: str
    """Its file and line, and its text."""

    def decides(self, path: str) -> bool:
        """Whether it matches this very path, and not a directory above it: those were decided before."""
        match = self.pattern.match_file(path)
        # The patterns have a group of their own, which participates if the match ends at a directory above.
        return match is not None and not any(
            part for name, part in match.match.groupdict().items() if not name.startswith(_STAR)
        )


_Files = tuple[tuple[str, str, tuple[_Rule, ...]], ...]
"""Ignore files, the deepest first: a prefix to add to paths of the tree, one to remove from them, and the rules."""


@dataclass(frozen=True)
class IgnoreRules:
    """The rules that apply in one directory."""

    _files: Mapping[str, _Files]
    """Ignore files by their names, in order of precedence."""
    _tracked: TrackedFiles
    _excluded: str = ""
    """The rule of git that leaves out what is in this directory and not tracked."""

    @classmethod
    def own(cls) -> IgnoreRules:
        """The rules of `.dtctlignore` files in the tree only."""
        return cls({OWN_FILE: ()}, TrackedFiles(None))

    @classmethod
    def above(cls, code: Path) -> IgnoreRules:
        """The rules that apply to the code directory from outside, before its own."""
        own = _read(code / OWN_FILE, OWN_FILE)
        if own is not None and not (own and all(not rule.pattern.include for rule in own)):
            return cls.own()
        above = _above_in_repository(code)
        top = above[-1] if above else code
        within = code.relative_to(top).as_posix() + "/" if above else ""
        excluded = tuple((within, "", rules) for rules in _excludes(top) if rules)
        files: dict[str, _Files] = {_OF_GIT: excluded} if own is None else {OWN_FILE: (), _OF_GIT: excluded}
        rules = cls(files, TrackedFiles(top, within))
        for directory in reversed(above):
            rules = rules._with(directory, _OF_GIT, code.relative_to(directory).as_posix() + "/", "")
        return rules

    def within(self, directory: Path, path: str) -> IgnoreRules:
        """These rules with those of a directory of the tree itself; `path` is "" or ends with `/`."""
        decided = not path or self._decisive(OWN_FILE, path[:-1], True) is not None
        rules = replace(self, _excluded="" if decided else self._rule_of_git(path[:-1], True))
        if rules._excluded:
            return rules
        for name in self._files:
            rules = rules._with(directory, name, "", path)
        return rules

    def rule_against(self, path: str, is_directory: bool) -> str:
        """The rule that leaves the path out; "" if there is none, or if it is a directory with tracked files.

        `path` is relative to the code directory, and no directory above it is left out.
        """
        own = self._decisive(OWN_FILE, path, is_directory)
        if own is not None:
            return own.shown if own.pattern.include else ""
        rule = self._rule_of_git(path, is_directory)
        return "" if rule and self._tracked.have(path, is_directory) else rule

    def _rule_of_git(self, path: str, is_directory: bool) -> str:
        """The rule that leaves the path out unless a `.dtctlignore` decides; "" for none."""
        rule = self._decisive(_OF_GIT, path, is_directory)
        return self._excluded or (rule.shown if rule is not None and rule.pattern.include else "")

    def sends(self, path: str, is_directory: bool, *, alike: str) -> bool:
        """Whether a line of a `.dtctlignore` requests this very path: `!.env`, but not `!*`, which means any.

        `alike` is a harmless path next to it: a line that also includes that one is not about this path.
        """
        rule = self._decisive(OWN_FILE, path, is_directory)
        return rule is not None and not rule.pattern.include and self._decisive(OWN_FILE, alike, is_directory) != rule

    def _decisive(self, name: str, path: str, is_directory: bool) -> _Rule | None:
        for added, removed, rules in self._files.get(name, ()):
            place = added + path[len(removed) :]
            for rule in reversed(rules):
                if (is_directory or not rule.directories_only) and rule.decides(place):
                    return rule
        return None

    def _with(self, directory: Path, name: str, added: str, removed: str) -> IgnoreRules:
        rules = _read(directory / name, "../" * added.count("/") + removed + name)
        return (
            replace(self, _files={**self._files, name: ((added, removed, rules), *self._files[name])})
            if rules
            else self
        )


def _above_in_repository(code: Path) -> list[Path]:
    """The directories above `code` up to the one with `.git`, the nearest first; none without a repository."""
    if (code / ".git").exists():
        return []
    above: list[Path] = []
    for directory in code.parents:
        above.append(directory)
        if (directory / ".git").exists():
            return above
    return []


def _excludes(top: Path) -> Iterator[tuple[_Rule, ...] | None]:
    """The rules that no `.gitignore` has: those of the repository's `info/exclude`, then the user's (gitignore(5))."""
    if not (top / ".git").exists():
        return
    directory = git_directory(top / ".git")
    yield _read(common_directory(directory) / "info" / "exclude", ".git/info/exclude")
    if (users := _users_excludes()) is not None:
        yield _read(users, str(users))


def _users_excludes() -> Path | None:
    """The file of `core.excludesFile`, which git itself reads from the user's configuration, never the repository's."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "git"
    for file in (Path("~/.gitconfig").expanduser(), home / "config"):
        with suppress(OSError):
            if b"excludesfile" in read_regular(file, _LIMIT_BYTES).lower():
                return _asked_of_git()
    return home / "ignore"


def _asked_of_git() -> Path | None:
    words = ["git", "config", "--global", "--type=path", "--get", "core.excludesFile"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(words, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_S)
        return Path(os.fsdecode(done.stdout.rstrip(b"\n"))) if done.stdout.strip() else None
    return None


_GIT_S = 10.0


def _read(file: Path, shown: str) -> tuple[_Rule, ...] | None:
    """The rules of an ignore file; None if there is no such file. `shown`: its path relative to the code directory."""
    try:
        lines = read_regular(file, _LIMIT_BYTES).decode("utf-8-sig", "surrogateescape").split("\n")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise PreflightError(
            f"cannot read {file}", detail=str(error.strerror), hint=f"ls -l {file}    shows it"
        ) from error
    return tuple(
        rule
        for number, line in enumerate(lines, 1)
        for rule in _parse(line, f"{file}:{number}", f"{shown}:{number} {printable(line.strip())}")
    )


def _parse(line: str, place: str, shown: str) -> list[_Rule]:
    from pathspec import GitIgnoreSpec

    if line.count("**") > MOST_DEEP:
        hint = "write several lines that are shorter"
        raise PreflightError(
            f"{place}: not a valid ignore pattern", detail=f"it has more than {MOST_DEEP} `**`", hint=hint
        )

    line = line.removesuffix("\r")
    text = line.rstrip(" ")
    directories_only = text.endswith("/")
    try:
        patterns = GitIgnoreSpec.from_lines([text[:-1] if directories_only else line]).patterns
    except ValueError as error:
        raise PreflightError(f"{place}: not a valid ignore pattern", detail=f"{line!r}: {error}") from error
    return [_Rule(_bounded(pattern), directories_only, shown) for pattern in patterns if pattern.include is not None]


def _bounded(pattern: Any) -> Any:
    """The same pattern, in which dozens of stars take hardly longer than one.

    Once the part after a star has matched, another star within the same name need not be tried at each of its
    positions. A lookahead is never retried; from Python 3.11 on `(?>...)` is a shorter notation.
    """
    first, *rest = pattern.regex.pattern.split(_ANY)
    if len(rest) < _MANY:
        return pattern
    regex = first
    for number, part in enumerate(rest, 1):
        if number == len(rest) or _leaves_the_name(part):
            regex += _ANY + part
        elif part:
            group = f"{_STAR}{number}"
            regex += f"(?=(?P<{group}>{_ANY}?{part}))(?P={group})"
    return type(pattern)(re.compile(regex), pattern.include)


def _leaves_the_name(part: str) -> bool:
    """Whether this part of a regular expression continues after a `/`, or opens a group."""
    return "/" in part.replace("[^/]", "") or "(" in part


_INDEX_BYTES = 1 << 26
"""The size of an index of half a million files, and a limit for their names and those of their directories: version 4
compresses names."""
_LONGEST_NAME = 4096
_HASHES = (20, 32)
"""Lengths of SHA-1 and SHA-256, in bytes. The index does not state its own."""
_HEADER = struct.Struct(">4sII")
_EXTENDED = 0x4000


class TrackedFiles:
    """Tracked files below `prefix` in the repository whose top is `top`; none if `top` is None.

    `prefix` is "" or ends with `/`. A missing or unreadable index has no files. It is read on first use.
    """

    def __init__(self, top: Path | None, prefix: str = "") -> None:
        self._top = top
        self._prefix = os.fsencode(prefix)

    def have(self, path: str, is_directory: bool) -> bool:
        """Whether this very file is tracked, or any file in this directory."""
        files, directories = self._paths
        return path in (directories if is_directory else files)

    @cached_property
    def _paths(self) -> tuple[set[str], set[str]]:
        files: set[str] = set()
        if self._top is not None:
            with suppress(OSError, ValueError, struct.error):
                files = {
                    os.fsdecode(name[len(self._prefix) :])
                    for name in _tracked_names(git_directory(self._top / ".git"))
                    if name.startswith(self._prefix)
                }
        directories: set[str] = set()
        size_bytes = 0
        for path in files:
            while (path := path.rpartition("/")[0]) and path not in directories:
                directories.add(path)
                if (size_bytes := size_bytes + len(path)) > _INDEX_BYTES:
                    return set(), set()
        return files, directories


def git_directory(git: Path) -> Path:
    """The git directory: in a worktree or a submodule `.git` is a file with its path."""
    try:
        text = read_regular(git, _LONGEST_NAME)
    except IsADirectoryError:
        return git
    return git.parent / os.fsdecode(text.removeprefix(b"gitdir:").strip())


def common_directory(directory: Path) -> Path:
    """The git directory of the whole repository: a worktree has one of its own."""
    with suppress(OSError, ValueError):
        common = read_regular(directory / "commondir", _LONGEST_NAME)
        return directory / os.fsdecode(common.strip())
    return directory


def _tracked_names(directory: Path) -> set[bytes]:
    data = read_regular(directory / "index", _INDEX_BYTES)
    names, base = _parsed(data)
    if base:  # a split index, which may delete entries of its base: too many do no harm
        names |= _parsed(read_regular(directory / f"sharedindex.{base}", _INDEX_BYTES))[0]
    return names


class IndexEntry(NamedTuple):
    """A tracked file as it was when git last looked at it: its blob, and the size and times by which git knows it."""

    blob: str
    size: int
    mtime_ns: int
    ctime_ns: int


_STATUS = struct.Struct(">10I")
_STAGES = 0x3000


def index_entries(directory: Path, hash_bytes: int) -> tuple[dict[str, IndexEntry], int]:
    """The entries of the index in this git directory, and the time of its last change; none for one that is missing,
    unreadable or split. Files in conflict have no entry.
    """
    entries: dict[str, IndexEntry] = {}
    with suppress(OSError, ValueError, struct.error):
        descriptor = open_regular(directory / "index")
        with os.fdopen(descriptor, "rb") as file:
            written_ns = os.fstat(descriptor).st_mtime_ns
            data = file.read(_INDEX_BYTES + 1)
        if len(data) > _INDEX_BYTES:
            return {}, 0
        end = _HEADER.size
        for name, start, end in _entries(data, hash_bytes):  # noqa: B007 (the last end is meant)
            changed, changed_ns, modified, modified_ns, *_, size = _STATUS.unpack_from(data, start)
            place = start + _STATUS.size
            (flags,) = struct.unpack_from(">H", data, place + hash_bytes)
            if not flags & _STAGES:
                blob = data[place : place + hash_bytes].hex()
                times = (modified * 10**9 + modified_ns, changed * 10**9 + changed_ns)
                entries[os.fsdecode(name)] = IndexEntry(blob, size, *times)
        if _base(data, end, hash_bytes):
            return {}, 0
        return entries, written_ns
    return {}, 0


def _parsed(data: bytes) -> tuple[set[bytes], str]:
    """Names, and the hash of the index that this one extends. Raises ValueError, struct.error."""
    for hash_bytes in _HASHES:
        with suppress(ValueError, struct.error):
            names, end, size_bytes = set(), _HEADER.size, 0
            for name, _, end in _entries(data, hash_bytes):  # noqa: B007 (the last end is meant)
                names.add(name)
                if (size_bytes := size_bytes + len(name)) > _INDEX_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            return names - {b""}, _base(data, end, hash_bytes)
    raise ValueError("not an index of git")


def _entries(data: bytes, hash_bytes: int) -> Iterator[tuple[bytes, int, int]]:
    """The name of each entry, its start and its end."""
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError(signature)
    name, place = b"", _HEADER.size
    for _ in range(count):
        start = place
        place += 40 + hash_bytes
        (flags,) = struct.unpack_from(">H", data, place)
        place += 4 if flags & _EXTENDED and version > 2 else 2
        kept, last = 0, name
        if version == 4:
            stripped, place = _number(data, place)
            kept = len(name) - stripped
        end = data.index(b"\0", place)
        name = last[:kept] + data[place:end]
        if kept < 0 or len(name) > _LONGEST_NAME or (name < last and name):
            raise ValueError(name)
        place = end + 1 if version == 4 else start + ((end - start) // 8 + 1) * 8
        yield name, start, place


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A number and its end, as in pack files: seven bits a byte, the highest first, and each further byte adds one."""
    (byte,) = struct.unpack_from("B", data, place)
    value = byte & 0x7F
    while byte & 0x80:
        place += 1
        (byte,) = struct.unpack_from("B", data, place)
        value = ((value + 1) << 7) | (byte & 0x7F)
        if value > _LONGEST_NAME:
            raise ValueError(value)
    return value, place + 1


def _base(data: bytes, place: int, hash_bytes: int) -> str:
    """The hash of the shared index, from the extension `link`; "" without one."""
    while place < len(data) - hash_bytes:
        name, size = struct.unpack_from(">4sI", data, place)
        if place + 8 + size > len(data) - hash_bytes:
            raise ValueError(name)
        if name == b"link":
            base = data[place + 8 : place + 8 + hash_bytes]
            return base.hex() if any(base) else ""
        place += 8 + size
    return ""
