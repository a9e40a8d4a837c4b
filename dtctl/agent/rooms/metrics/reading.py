"""The scalars that trainers have written for TensorBoard, read without TensorFlow (docs/agent.md, "Scalars").

It searches for files with `tfevents` in their names in a run's directories and some levels below. Others may write
there, and the file system may hang: only regular files are opened, data is used only after its checksum was compared,
and a call ends after a few seconds, with the points so far. The next one continues from there.
"""

from __future__ import annotations

import os
import time
from functools import partial

from ...host.budget import Budget, Silent, Spent, within
from ...records.kinds import MOST
from ...records.values import brief
from .event_files import event_folders, outermost, text
from .folder import Folder, Room, Series, spread
from .records import LONGEST_PATH, MOST_PROBLEMS, MOST_SCALAR_FOLDERS, FolderPoints, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Sequence, Tuple

    from .folder import Point

LOOK_S = 8.0
"""The time limit of one call."""

MOST_SERIES = 1000
MOST_FILES = 1000
"""The most files of one folder, the newest by their names."""

MOST_POINTS_SENT = 100_000
"""The most points of all series together, in one answer."""

_MOST_NAMES = 100_000
_HANGS = "its file system does not answer"


class Reader:
    """All event files below some directories. Each call reads only new data."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = outermost(roots)
        self._room = Room(MOST_SERIES)
        self._folders: Dict[str, Folder] = {}
        self._problems: List[Problem] = []

    def refresh(self) -> None:
        until = time.monotonic() + LOOK_S
        self._problems = []
        for root in self.roots:
            try:
                within(max(until - time.monotonic(), 0.5) + 1.0, root, partial(self._refresh, root, until))
            except Silent:
                self._say(root, _HANGS)

    def look_until_all_is_read(self, limit_s: float) -> None:
        """Reads repeatedly, until there is nothing more to read."""
        until = time.monotonic() + limit_s
        left = -1
        self.refresh()
        while self.unread_bytes not in (0, left) and time.monotonic() < until:
            left = self.unread_bytes
            self.refresh()

    @property
    def unread_bytes(self) -> int:
        """The bytes that the next call will read, except parts of incomplete records."""
        return min(sum(folder.unread_bytes for folder in self._folders.values()), MOST)

    @property
    def omitted(self) -> int:
        """Values that had no room."""
        return min(self._room.omitted, MOST)

    def problems(self) -> List[Problem]:
        found = list(self._problems)
        for folder in list(self._folders.values()):
            for name, why in folder.problems.items():
                found.append({"path": text(os.path.join(folder.path, name))[-LONGEST_PATH:], "problem": why})
        return found[:MOST_PROBLEMS]

    def series(self, wanted: Callable[[str], bool], most: int) -> List[FolderPoints]:
        """At most `most` points of each series whose tag is wanted."""
        return self._records(wanted, lambda series, each: spread(series.points(), min(most, each)))

    def new_points(self, wanted: Callable[[str], bool]) -> List[FolderPoints]:
        """The points that have been found since `forget_new` or this was called; of each series the last of them."""
        found = self._records(wanted, lambda series, each: list(series.fresh)[-each:])
        self.forget_new()
        return found

    def forget_new(self) -> None:
        """Marks all points so far as no longer new."""
        for folder in self._folders.values():
            for series in folder.series.values():
                series.fresh.clear()

    def _records(
        self, wanted: Callable[[str], bool], points_of: Callable[[Series, int], List[Point]]
    ) -> List[FolderPoints]:
        """Folders with the series for which `points_of`, given a limit, returns points."""
        chosen: List[Tuple[Folder, List[Tuple[str, Series]]]] = []
        for folder in sorted(self._folders.values(), key=lambda one: (one.root, one.name)):
            tags = [(tag, series) for tag, series in sorted(folder.series.items()) if series and wanted(tag)]
            if tags and len(chosen) < MOST_SCALAR_FOLDERS:
                chosen.append((folder, tags))
        each = max(1, MOST_POINTS_SENT // max(1, sum(len(tags) for _, tags in chosen)))
        found: List[FolderPoints] = []
        for folder, tags in chosen:
            points = [(tag, series, points_of(series, each)) for tag, series in tags]
            records = [series.record(tag, some) for tag, series, some in points if some]
            if records:
                found.append(folder.record(records))
        return found

    def _refresh(self, root: str, until: float) -> None:
        budget = Budget(until, _MOST_NAMES)
        found: Dict[str, Tuple[int, List[str]]] = {}
        try:
            for path, inode, names in event_folders(root, budget, self._say):
                found[path] = inode, sorted(names)[-MOST_FILES:]
            for path in [path for path in self._folders if self._folders[path].root == root and path not in found]:
                self._room.series += len(self._folders.pop(path).series)  # deleted
        except Spent as spent:
            self._say(root, "not all of it was read: %s" % spent)
        for path, (_, names) in found.items():
            if path in self._folders:
                self._folders[path].note(names)
        try:
            for path, (inode, names) in found.items():
                folder = self._folders.get(path)
                if folder is None:
                    if len(self._folders) >= MOST_SCALAR_FOLDERS:
                        self._say(root, "more than %d directories have event files" % MOST_SCALAR_FOLDERS)
                        break
                    folder = self._folders[path] = Folder(root, path, self._room)
                    folder.note(names)
                folder.inode = inode
                folder.refresh(names, budget.check)
        except Spent:
            pass  # what is left is reported as unread

    def _say(self, path: str, problem: str) -> None:
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append({"path": text(path), "problem": brief(problem)})
