"""Directories in which sessions receive: each of one session, and removed by others only when that one is dead."""

from __future__ import annotations

import contextlib
import os
import time

from ..host import locks
from ..host.paths import entries, modified
from .tree import remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

_PREFIX = ".incoming-"
_ORPHAN_S = 24 * 3600.0


class Incoming:
    """A directory below `bundles/` for this session alone; removed at the end with whatever is still in it."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._lock: Optional[int] = None
        self.path = ""

    def __enter__(self) -> Incoming:
        while not self._take(os.path.join(self._store, _PREFIX + os.urandom(8).hex())):
            pass  # another session took the new directory for an abandoned one before it was locked
        return self

    def _take(self, path: str) -> bool:
        os.mkdir(path, 0o700)
        try:
            self._lock = locks.hold(os.path.join(path, "lock"), exclusive=True)
        except FileNotFoundError:
            return False
        self.path = path
        return self._lock is not None

    def __exit__(self, *_: Any) -> None:
        remove_tree(self.path)
        if self._lock is not None:
            os.close(self._lock)


def remove_abandoned(store: str) -> None:
    """Removes what sessions that were killed have left behind."""
    for path in abandoned(store):
        with contextlib.suppress(OSError):  # its session is faster, or it is another user's
            remove_tree(path)


def abandoned(store: str) -> Iterator[str]:
    """What no session receives into any more. Each is locked, where it can be, until the next one is asked for."""
    for name in entries(store):
        if name.startswith(_PREFIX):
            path = os.path.join(store, name)
            try:
                lock = locks.hold(os.path.join(path, "lock"), exclusive=True, create=False, certain=True)
            except FileNotFoundError:
                lock = None  # it is about to be locked, or almost removed
            try:
                if lock is not None or time.time() - modified(path) > _ORPHAN_S:
                    yield path
            finally:
                if lock is not None:
                    os.close(lock)
