"""The agent's programs on this host: agent/SHA256, one for each version of dtctl that has been here.

Every process of the agent holds a shared lock on the program that it runs from. agent/current, a link, is the
program that a restart of the machine begins with.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

from . import locks, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional

_SHA256 = r"[0-9a-f]{64}\Z"
_UNUSED_S = 3600.0
"""A session that has just found its program here may not have locked it yet."""

_lock: Optional[int] = None


def directory() -> str:
    """The program that this process runs from."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    return os.path.dirname(package)


def hold() -> None:
    """Keeps the program from being removed as long as this process, or one that it forks, lives."""
    global _lock
    with suppress(OSError):  # a full disk; the lock file is the only thing to be written
        _lock = locks.hold(_lock_path(directory()), exclusive=False)


def save_compiled() -> None:
    """Saves modules that this process has compiled, for later ones (compiled.py)."""
    with suppress(OSError):  # a full disk: they compile it again
        getattr(sys.modules[__name__].__loader__, "save", lambda: None)()


def held() -> List[int]:
    """The lock's descriptor, if there is one."""
    return [] if _lock is None else [_lock]


def set_current(root: str) -> str:
    """Makes this process's program the one of a restart, and returns a path that is the same for every version."""
    path = _current(root)
    if os.path.realpath(path) != directory():
        temporary = "%s.%d.new" % (path, os.getpid())
        os.symlink(os.path.basename(directory()), temporary)
        os.replace(temporary, path)
    return path


def has_current(root: str) -> bool:
    return os.path.islink(_current(root))


def forget_current(root: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_current(root))


def unused(root: str, now: float) -> Iterator[str]:
    """Unused programs of other versions. Each is locked until the next one is requested."""
    store = os.path.join(root, "agent")
    needed = (directory(), os.path.realpath(_current(root)))
    for name in paths.entries(store):
        path = os.path.join(store, name)
        if not re.match(_SHA256, name) or path in needed or now - paths.modified(path) < _UNUSED_S:
            continue
        with suppress(FileNotFoundError), locks.alone(_lock_path(path), create=True) as alone:
            if alone:
                yield path


def _current(root: str) -> str:
    return os.path.join(root, "agent", "current")


def _lock_path(program: str) -> str:
    return os.path.join(program, "lock")
