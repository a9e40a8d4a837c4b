"""What the history of commits says of landings: how many there were, and what has changed since the last one.

Git does not record a landing, and a clean clone has nothing but the commits. A landing is taken to be a commit through
which all of the history passes, and after which nobody committed for a while: the tests of a submission run then, and
the next work begins. One that is not recognised makes the change larger, and the count is one lower from then on.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

QUIET_S = 45 * 60
"""Longer than between two commits of one work, shorter than from the last of a submission to the first of the next."""


@dataclass(frozen=True)
class Commit:
    name: str
    committed_s: int
    parents: tuple[str, ...]


def history(root: Path) -> list[Commit]:
    """Children before their parents, from HEAD."""
    lines = (line.split() for line in git(root, "log", "--topo-order", "--format=%H %ct %P").splitlines())
    return [Commit(name, int(time), tuple(parents)) for name, time, *parents in lines]


def landings(history: Iterable[Commit]) -> Iterator[Commit]:
    """The newest first, without HEAD, of which nobody knows whether it will land."""
    unvisited: set[str] = set()
    earliest_s = None
    for commit in history:
        if unvisited == {commit.name} and earliest_s is not None and earliest_s - commit.committed_s >= QUIET_S:
            yield commit
        unvisited.discard(commit.name)
        unvisited.update(commit.parents)
        earliest_s = min(commit.committed_s, commit.committed_s if earliest_s is None else earliest_s)


def changed_tests(root: Path, since: str) -> list[str]:
    """Files of tests that exist, and that were added or changed since that commit."""
    names = git(root, "diff", "--name-only", "--diff-filter=d", since, "HEAD", "--", "tests").splitlines()
    return [name for name in names if Path(name).match("test_*.py")]


def git(root: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True).stdout
