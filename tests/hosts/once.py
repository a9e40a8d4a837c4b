"""What is made once for all processes of a test run."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.hosts.sandbox import make_directory

_SHARED = "DTCTL_TEST_SHARED"


@cache
def shared_directory() -> Path:
    """Removed with the process that asks first; those that it starts have the same one."""
    if shared := os.environ.get(_SHARED):
        return Path(shared)
    directory = make_directory("shared")
    os.environ[_SHARED] = str(directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def once(name: str, make: Callable[[Path], object]) -> Path:
    """The path of that name in the shared directory; the first process that asks makes it, and others wait."""
    path = shared_directory() / name
    with path.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.with_name(f"{name}.made").exists():
            make(path)
            path.with_name(f"{name}.made").touch()
    return path
