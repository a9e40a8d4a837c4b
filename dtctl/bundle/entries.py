"""What lies in the code directory, looked at by descriptors, and each thing that cannot be sent as an error."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from dtctl.errors import PreflightError

_SPARSE_BYTES = 1 << 30
_SPARSE_PART = 16
"""A larger file is sparse if it takes up less than this part of its size on the disk."""
IGNORE_HINT = "or leave it out with a line in .dtctlignore (or .gitignore)"
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def check_file(found: os.stat_result, place: str) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        what = _KINDS.get(kind, "not a regular file")
        raise PreflightError(f"{place} is {what} and cannot be sent", hint=f"remove it, {IGNORE_HINT}")
    if found.st_size > _SPARSE_BYTES and found.st_blocks * 512 < found.st_size // _SPARSE_PART:
        raise PreflightError(
            f"{place} is a sparse file and cannot be sent",
            detail=f"it claims {found.st_size} bytes and takes {found.st_blocks * 512} on the disk",
            hint=f"remove it, {IGNORE_HINT}",
        )


def open_directory(name: str | Path, place: str, parent: int | None = None) -> int:
    """A descriptor of the directory itself, below the top never of one that a link leads to."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if parent is None else os.O_NOFOLLOW)
    try:
        return os.open(name, flags, dir_fd=parent)
    except NotADirectoryError as error:
        raise PreflightError(f"{place} is not a directory", hint="trainer.code names a directory") from error
    except FileNotFoundError as error:
        raise PreflightError(f"there is no directory {place}", hint="trainer.code names a directory") from error
    except OSError as error:
        raise _cannot_list(place, error) from error


def listed(descriptor: int, place: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(descriptor) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _cannot_list(place, error) from error


def _cannot_list(place: str, error: OSError) -> PreflightError:
    return PreflightError(f"cannot list {place}", detail=str(error.strerror), hint=f"chmod u+rx {place}, {IGNORE_HINT}")


def stat_entry(entry: os.DirEntry[str], place: str) -> os.stat_result:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        raise PreflightError(f"cannot look at {place}", detail=str(error.strerror), hint="try again") from error


def target_of(entry: os.DirEntry[str], parent: int, place: str) -> str:
    try:
        target = os.readlink(entry.name, dir_fd=parent)
    except OSError as error:
        raise PreflightError(f"cannot look at {place}", detail=str(error.strerror), hint="try again") from error
    check_utf8(target, f"what the link {place} leads to")
    return target


def check_utf8(text: str, what: str) -> None:
    """Names travel as UTF-8; this Python reads those of the disk as its locale says."""
    try:
        if os.fsencode(text).decode("utf-8") == text:
            return
    except UnicodeDecodeError as error:
        raise PreflightError(f"{what} is not UTF-8", hint=f"rename it, {IGNORE_HINT}") from error
    raise PreflightError(
        f"{what} cannot be read as UTF-8 here",
        detail=f"Python takes the names of files for {sys.getfilesystemencoding()} by your locale; hosts get UTF-8",
        hint=f"PYTHONUTF8=1 before the command, {IGNORE_HINT}",
    )


def printable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")
