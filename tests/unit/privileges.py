"""What is forbidden to an ordinary user, tested by root too: for a moment it becomes one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def without_privileges() -> Iterator[None]:
    """As an ordinary user: root may read and write everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@contextmanager
def public_directory() -> Iterator[Path]:
    """A directory that everybody may enter; those that pytest makes are its user's alone."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)
