"""Which files of the code directory are not sent: rules in the language of gitignore(5), and what they apply to.

With a `.dtctlignore` at the top of the code directory, files of that name rule; else those named `.gitignore` do,
also the ones above the code directory as far up as its repository goes. A rule of a deeper file wins, and of one
file the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtctl.errors import PreflightError

NEVER_SENT = frozenset({".git", "__pycache__"})


@dataclass(frozen=True)
class _Rule:
    pattern: Any
    """A RegexPattern of pathspec, made without the `/` at its end."""
    directories_only: bool

    def decides(self, path: str) -> bool:
        """It is this very path that matches, and not a directory above it: those were decided before."""
        match = self.pattern.match_file(path)
        # The patterns have one group, and it takes part when the match ends at a directory above.
        return match is not None and not any(match.match.groups())


@dataclass(frozen=True)
class IgnoreRules:
    """The rules that apply in one directory."""

    file_name: str
    _files: tuple[tuple[str, str, tuple[_Rule, ...]], ...] = ()
    """Of each ignore file, the deepest first: what to put before a path of the tree, or to take off, and its rules."""

    @classmethod
    def above(cls, code: Path) -> IgnoreRules:
        """Those that apply to the code directory from outside, before its own."""
        if (code / ".dtctlignore").is_file():
            return cls(".dtctlignore")
        rules = cls(".gitignore")
        for directory in reversed(_above_in_repository(code)):
            rules = rules._with(directory / ".gitignore", code.relative_to(directory).as_posix() + "/", "")
        return rules

    def within(self, directory: Path, path: str) -> IgnoreRules:
        """With those of a directory of the tree itself; `path` is "" or ends with `/`."""
        return self._with(directory / self.file_name, "", path)

    def ignores(self, path: str, is_directory: bool) -> bool:
        """`path` is relative to the code directory, and no directory above it is ignored."""
        for added, removed, rules in self._files:
            place = added + path[len(removed) :]
            for rule in reversed(rules):
                if (is_directory or not rule.directories_only) and rule.decides(place):
                    return bool(rule.pattern.include)
        return False

    def _with(self, file: Path, added: str, removed: str) -> IgnoreRules:
        rules = _read(file)
        return IgnoreRules(self.file_name, ((added, removed, rules), *self._files)) if rules else self


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


def _read(file: Path) -> tuple[_Rule, ...]:
    try:
        lines = file.read_bytes().decode("utf-8-sig", "surrogateescape").split("\n")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ()
    except OSError as error:
        raise PreflightError(f"cannot read {file}", detail=str(error.strerror), hint=f"chmod u+r {file}") from error
    return tuple(rule for number, line in enumerate(lines, 1) for rule in _parse(line, f"{file}:{number}"))


def _parse(line: str, place: str) -> list[_Rule]:
    from pathspec import GitIgnoreSpec

    line = line.removesuffix("\r")
    text = line.rstrip(" ")
    directories_only = text.endswith("/")
    try:
        patterns = GitIgnoreSpec.from_lines([text[:-1] if directories_only else line]).patterns
    except ValueError as error:
        raise PreflightError(f"{place}: not a pattern of an ignore file", detail=f"{line!r}: {error}") from error
    return [_Rule(pattern, directories_only) for pattern in patterns if pattern.include is not None]
