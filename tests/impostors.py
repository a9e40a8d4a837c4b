"""What a trainer or another user may put into the place of a file."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import wraps
from pathlib import Path

TERABYTE = 1 << 40


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_a_file(path: Path) -> None:
    """A link to a file of this user, which must be neither read nor written."""
    victim(path).write_text("the user's own\n")
    path.symlink_to(victim(path))


def link_without_end(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_nothing(path: Path) -> None:
    path.symlink_to(victim(path))


def directory(path: Path) -> None:
    path.mkdir()


def local_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, TERABYTE)


def in_place_of_a_file(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """The same where a file stands."""

    @wraps(make)
    def exchange(path: Path) -> None:
        path.unlink()
        make(path)

    return exchange


def victim(path: Path) -> Path:
    """What links lead to, beside their own directory."""
    return path.parent.parent / "victim"


NO_FILES: dict[str, Callable[[Path], None]] = {
    "is a FIFO": fifo,
    "is a link": link_to_a_file,
    "is a link without end": link_without_end,
    "is a link to nothing": link_to_nothing,
    "is a directory": directory,
    "is a socket": local_socket,
}
"""Makers of paths that are no regular files, by the words of an error about them, or how these begin."""


def said(name: str) -> str:
    return "is a link" if name.startswith("is a link") else name


def unharmed(path: Path) -> bool:
    """Nothing was written through a link that stood at `path`."""
    try:
        return victim(path).read_text() == "the user's own\n"
    except FileNotFoundError:
        return True
