"""Files and directories by a descriptor of the directory that they are in, so that no link of others leads away."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from ..host import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

_BLOCK = 1 << 20


def opened(directory: str, name: Optional[str]) -> int:
    """The configured directory may be reached through any link; what is in it may not."""
    base = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if name is None:
        return base
    try:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=base)
        return files.directory(name, base)
    finally:
        os.close(base)


def made(name: str, at: int) -> int:
    """The descriptor of a new file. Raises FileExistsError."""
    return files.descriptor(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, at)


def exists(name: str, at: int) -> bool:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=at, follow_symlinks=False)
        return True
    return False


def size_of(name: str, at: int) -> int:
    try:
        return files.look(name, at).st_size
    except FileNotFoundError:
        return 0


def sha256(opened: int, alive: Callable[[], None] = lambda: None) -> str:
    """`alive` is called from time to time, and may raise."""
    digest, offset = hashlib.sha256(), 0
    while True:
        data = files.read_at(opened, offset, _BLOCK)
        if not data:
            return digest.hexdigest()
        digest.update(data)
        offset += len(data)
        alive()
