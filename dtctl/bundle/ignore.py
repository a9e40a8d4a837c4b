"""Which files of the code directory are not sent: rules in the language of gitignore(5), and what they apply to.

With a `.dtctlignore` at the top of the code directory, files of that name rule; else those named `.gitignore` do,
also the ones above the code directory as far up as its repository goes. A `.dtctlignore` of nothing but `!` lines
makes exceptions: the `.gitignore` files still rule, and it overrides them. A rule of a deeper file wins, and of one
file the last. A file that git tracks is sent even if a `.gitignore` names it, because git does not ignore it either.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dtctl.bundle.entries import printable
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.folder import read_regular

_NEVER_SENT = frozenset({".git", "__pycache__"})
_REPORT = re.compile(r".+-\d{8}-\d{6}-[0-9a-f]{4}\.(?:html|md)")
"""As `dtctl report` names what it writes into the directory of cluster.yaml, which is most often that of the code."""
OWN_FILE = ".dtctlignore"
_OF_GIT = ".gitignore"
_LIMIT_BYTES = 4_000_000
MOST_DEEP = 16
"""`**` in one pattern."""
_ANY = "[^/]*"
"""What pathspec makes of a star."""
_MANY = 3
_STAR = "star"


def is_never_sent(name: str) -> bool:
    """Regardless of the rules: what is not code, or is made from it."""
    return name in _NEVER_SENT or _REPORT.fullmatch(name) is not None


@dataclass(frozen=True)
class _Rule:
    pattern: Any
    """A RegexPattern of pathspec, made without the `/` at its end."""
    directories_only: bool
    shown: str
    """Its place, and its text."""

    def decides(self, path: str) -> bool:
        """It is this very path that matches, and not a directory above it: those were decided before."""
        match = self.pattern.match_file(path)
        # The patterns have one group of their own, and it takes part when the match ends at a directory above.
        return match is not None and not any(
            part for name, part in match.match.groupdict().items() if not name.startswith(_STAR)
        )


_Files = tuple[tuple[str, str, tuple[_Rule, ...]], ...]
"""Ignore files, the deepest first: what to put before a path of the tree, or to take off, and the rules."""


@dataclass(frozen=True)
class IgnoreRules:
    """The rules that apply in one directory."""

    _files: Mapping[str, _Files]
    """Rules by the names of ignore files, in order of precedence."""
    _tracked: TrackedFiles
    _excluded: str = ""
    """The rule of git's that leaves out what is in this directory and is not tracked."""

    @classmethod
    def own(cls) -> IgnoreRules:
        """Those of `.dtctlignore` files in the tree itself, and no others."""
        return cls({OWN_FILE: ()}, TrackedFiles(None))

    @classmethod
    def above(cls, code: Path) -> IgnoreRules:
        """The rules that apply to the code directory from outside, before its own."""
        own = _read(code / OWN_FILE, OWN_FILE)
        if own is not None and not (own and all(not rule.pattern.include for rule in own)):
            return cls.own()
        above = _above_in_repository(code)
        files: dict[str, _Files] = {_OF_GIT: ()} if own is None else {OWN_FILE: (), _OF_GIT: ()}
        rules = cls(files, TrackedFiles(code if above or (code / ".git").exists() else None))
        for directory in reversed(above):
            rules = rules._with(directory, _OF_GIT, code.relative_to(directory).as_posix() + "/", "")
        return rules

    def within(self, directory: Path, path: str) -> IgnoreRules:
        """Adds the rules of a directory of the tree itself; `path` is "" or ends with `/`."""
        decided = not path or self._decisive(OWN_FILE, path[:-1], True) is not None
        rules = replace(self, _excluded="" if decided else self._rule_of_git(path[:-1], True))
        if rules._excluded:
            return rules
        for name in self._files:
            rules = rules._with(directory, name, "", path)
        return rules

    def rule_against(self, path: str, is_directory: bool) -> str:
        """The rule that leaves it out; "" where none does, and for a directory in which something is tracked.

        `path` is relative to the code directory, and no directory above it is left out.
        """
        own = self._decisive(OWN_FILE, path, is_directory)
        if own is not None:
            return own.shown if own.pattern.include else ""
        rule = self._rule_of_git(path, is_directory)
        return "" if rule and self._tracked.have(path, is_directory) else rule

    def _rule_of_git(self, path: str, is_directory: bool) -> str:
        """Where no `.dtctlignore` decides; "" for none."""
        rule = self._decisive(_OF_GIT, path, is_directory)
        return self._excluded or (rule.shown if rule is not None and rule.pattern.include else "")

    def sends(self, path: str, is_directory: bool, *, alike: str) -> bool:
        """A line of a `.dtctlignore` wants this very path to be sent: `!.env`, but not `!*`, which means any.

        `alike` is a path beside it that nobody has to mind: a line that lets it through means more than this one.
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


def _read(file: Path, shown: str) -> tuple[_Rule, ...] | None:
    """None: there is no such file. `shown`: what it is called seen from the code directory."""
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
    """The same pattern, of which dozens of stars take hardly longer than one.

    Once what follows a star has matched, another star of the same name need not be tried at every place of it again.
    Nothing tries again what a look ahead has found; from Python 3.11 on `(?>...)` is a shorter way to say so.
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
    """A part of a regular expression: it continues behind a `/`, or opens a group."""
    return "/" in part.replace("[^/]", "") or "(" in part


_GIT = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never", "-c", "safe.directory=*")
"""Whatever the repository's own configuration says: no program of it runs, and nothing is fetched."""
_GIT_S = 60.0


class TrackedFiles:
    """What git tracks below a directory; None: nothing. Git is run when something is first asked for.

    A repository that git cannot read has none, nor has any where git is not installed.
    """

    def __init__(self, code: Path | None) -> None:
        self._code = code

    def have(self, path: str, is_directory: bool) -> bool:
        """This very file is tracked, or something in this directory."""
        files, directories = self._paths
        return path in (directories if is_directory else files)

    @cached_property
    def _paths(self) -> tuple[set[str], set[str]]:
        files = set(filter(None, os.fsdecode(_listed_by_git(self._code)).split("\0"))) if self._code else set()
        directories: set[str] = set()
        for path in files:
            while (path := path.rpartition("/")[0]) and path not in directories:
                directories.add(path)
        return files, directories


def _listed_by_git(code: Path) -> bytes:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [*_GIT, "ls-files", "-z"], cwd=code, env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""
