"""Event files as bytes: those that are there, and what is added to them."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from ...host import files
from ...host.budget import Budget, Spent
from .records import LONGEST_PATH, FolderAt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Iterator, List, Sequence, Set, Tuple


_DEEPEST = 5
_MARK = "tfevents"


def event_folders(root: str, budget: Budget, say: Callable[[str, str], None]) -> Iterator[Tuple[str, int, List[str]]]:
    """Directories with event files: path, inode and the names. `say` gets unreadable ones. Raises Spent."""
    seen: Set[Tuple[int, int]] = set()
    left = [(root, 0)]
    while left:
        path, depth = left.pop()
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            names, below = _listed(path, budget)
        except (FileNotFoundError, NotADirectoryError):
            continue  # nothing has been written yet
        except OSError as error:
            say(path, "cannot be read: %s" % error.strerror)
            continue
        if depth < _DEEPEST:
            left += [(each, depth + 1) for each in sorted(below, reverse=True)]
        if names and len(path) <= LONGEST_PATH:
            yield path, status.st_ino, names


def _listed(path: str, budget: Budget) -> Tuple[List[str], List[str]]:
    """Names of event files, and paths of directories, without hidden ones."""
    names, below = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            budget.name()
            if entry.name.startswith("."):
                continue
            with suppress(FileNotFoundError):
                if files.leads_on(entry):
                    below.append(entry.path)
                elif _MARK in entry.name:
                    names.append(entry.name)
    return names, below


def outermost(roots: Sequence[str]) -> List[str]:
    """The roots, each once, without those inside another."""
    real = list(dict.fromkeys(map(os.path.normpath, roots)))
    others = [root.rstrip("/") + "/" for root in real]
    return [root for root in real if not any(root.startswith(other) for other in others)]


LOOK_S = 20.0
MOST_FILES = 10_000
CHUNK_BYTES = 256 * 1024
_MOST_NAMES = 200_000


class Found:
    """A directory with event files."""

    def __init__(self, root: str, path: str, inode: int, names: List[str]) -> None:
        self.root = root
        self.path = path
        self.names = sorted(names)
        self.record = folder_at(root, path, inode, self.names)

    def size_bytes(self) -> int:
        total = 0
        for name in self.names:
            with suppress(OSError):
                total += files.stat_regular(os.path.join(self.path, name)).st_size
        return total


def find(roots: Sequence[str]) -> Iterator[Found]:
    """The directories with event files that a search of limited time finds."""
    budget = Budget(time.monotonic() + LOOK_S, _MOST_NAMES)
    try:
        for root in outermost(roots):
            for path, inode, names in event_folders(root, budget, lambda path, problem: None):
                yield Found(root, path, inode, names)
    except Spent:
        return


def folder_at(root: str, path: str, inode: int, names: Iterable[str]) -> FolderAt:
    """A directory as records name it; hosts that share it find the same inode and first file."""
    identity = "%x-%s" % (inode, text(min(names, default=""))[:255])
    return {"dir": text(root), "name": text(os.path.relpath(path, root)), "identity": identity}


def text(path: str) -> str:
    """A path that any reader of JSON takes."""
    return path.encode("utf-8", "replace").decode("utf-8")
