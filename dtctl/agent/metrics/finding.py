"""Where event files are: files with `tfevents` in their names in some directories and a few levels below."""

from __future__ import annotations

import os

from ..host import files
from ..records.metrics import LONGEST_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, List, Sequence, Set, Tuple

    from ..host.budget import Budget

_DEEPEST = 5
_MARK = "tfevents"


def event_folders(root: str, budget: Budget, say: Callable[[str, str], None]) -> Iterator[Tuple[str, int, List[str]]]:
    """Directories with event files: path, inode and the names. `say` is told what cannot be read. Raises Spent."""
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
            say(path, "cannot be looked at: %s" % error.strerror)
            continue
        if depth < _DEEPEST:
            left += [(each, depth + 1) for each in sorted(below, reverse=True)]
        if names and len(path) <= LONGEST_PATH:
            yield path, status.st_ino, names


def _listed(path: str, budget: Budget) -> Tuple[List[str], List[str]]:
    """Event files by their names, and directories by their paths. What is hidden holds no scalars."""
    names, below = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            budget.name()
            if entry.name.startswith("."):
                continue
            try:
                if files.leads_on(entry):
                    below.append(entry.path)
                elif _MARK in entry.name:
                    names.append(entry.name)
            except FileNotFoundError:
                continue
    return names, below


def outermost(roots: Sequence[str]) -> List[str]:
    """Each once, and none that lies in another."""
    real = {os.path.normpath(root): None for root in roots}
    return [root for root in real if not any(root != other and _is_in(root, other) for other in real)]


def _is_in(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")
