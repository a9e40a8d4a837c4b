"""A repository of git and its history, read from its files: what HEAD names, the remote, and the commits between two.

`git` is not started, so nothing that the configuration of a repository names is executed.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from dtctl.agent.host.secrets import Masks
from dtctl.bundle.git_objects import Objects, Unreadable
from dtctl.bundle.ignore import common_directory, git_directory
from dtctl.folder import read_regular

_REF_BYTES = 4096
_PACKED_REFS_BYTES = 1 << 26
_CONFIG_BYTES = 1 << 20
_MOST_REFS = 5
"""The most symbolic references in a row, as in git (refs.c)."""
_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_MOST_WALKED = 20_000
LONGEST = 400
"""The most characters of a branch, a remote and a note."""
INSPECT_S = 20.0
"""How long reading a repository may take."""


class Damaged(Exception):
    """What of the repository cannot be read; a clause."""


def find(code: Path) -> tuple[Path, Path] | None:
    """The top of the repository, and its git directory."""
    for top in (code, *code.parents):
        if os.path.lexists(top / ".git"):
            try:
                return top, git_directory(top / ".git")
            except (OSError, ValueError):
                return top, top / ".git"
    return None


def head(git: Path, common: Path) -> tuple[str, str]:
    """The commit and the branch. Raises Damaged."""
    name, branch = "HEAD", ""
    for _ in range(_MOST_REFS):
        text = _ref(git if name == "HEAD" else common, name)
        if text is None and name == "HEAD":
            raise Damaged("the repository has no HEAD")
        if text is None:
            packed = _packed_ref(common, name)
            return packed, branch
        if not text.startswith("ref:"):
            if not _NAME.match(text):
                raise Damaged(f"{name} is damaged")
            return text, branch
        name = text.removeprefix("ref:").strip()
        if name == "refs/heads/.invalid":
            raise Damaged("the repository keeps its references in a format that dtctl does not read (reftable)")
        if not name.startswith("refs/") or ".." in name.split("/"):
            raise Damaged("HEAD is damaged")
        branch = branch or printable(name.removeprefix("refs/heads/"))[:LONGEST]
    raise Damaged("HEAD is damaged: it leads to too many references")


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


def common_of(top: Path, git: Path) -> Path:
    """The git directory of the whole repository. Raises Damaged unless both are those of `top`: a `.git` from
    elsewhere can name any other.
    """
    common = common_directory(git)
    own = top / ".git"
    if git.exists() and not _names(git, top):
        raise Damaged(f"{own} leads to {git}, which does not name this directory")
    if common != git and git.resolve().parent != common.resolve() / "worktrees":
        raise Damaged(f"{git} leads to {common}, of which it is no worktree")
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


def remote_of(common: Path, branch: str) -> str:
    """The URL of the branch's remote, or of `origin`."""
    values = _config(common)
    name = values.get((f'branch "{branch}"', "remote"), "origin")
    return without_credentials(values.get((f'remote "{name}"', "url"), ""))[:LONGEST]


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
        return Masks(()).hide_text(printable(url))  # git@host:path, or a directory
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    user, at, host = parts.netloc.rpartition("@")
    named = user.partition(":")[0] + at if parts.scheme in ("ssh", "git+ssh", "ssh+git") else ""
    path = Masks(()).hide_text(parts.path)
    return printable(urlunsplit((parts.scheme, named + host, path, "", "")))


def printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())


def commits_between(code: Path, old: str, new: str) -> tuple[list[str], list[str]] | None:
    """The commits that only `new` has, and those that only `old` has, newest first, as `12ab34cd5678 subject`.

    None if the repository of `code` does not have both, or if their history is too long.
    """
    repository = find(code)
    if repository is None or not (_NAME.match(old) and _NAME.match(new)):
        return None
    try:
        common = common_of(*repository)
        with Objects(common / "objects", time.monotonic() + INSPECT_S) as objects:
            histories = [dict(_history(objects, start, _shallow(common))) for start in (old, new)]
    except (Damaged, Unreadable, OSError, ValueError):
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
        yield commit, Masks(()).hide_text(printable(subject))[:100]
        for parent in () if commit in ends else parents:
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
        if len(seen) > _MOST_WALKED:
            raise Unreadable("the history is too long")
