"""A report's file: for its owner alone, whole or not at all, and never in place of something else."""

from __future__ import annotations

import stat
from pathlib import Path

from dtctl.errors import DtctlError, UsageError
from dtctl.places import replace_file

MARK = "<!-- dtctl report"
"""How a report begins, or its second line."""

_HEAD_BYTES = 200


def check_place(path: Path, *, force: bool) -> None:
    """Raises UsageError for a place where something else stands, and where no file can be."""
    try:
        found = path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise UsageError(f"{path.parent} is no directory", hint="-O names a file in one that is there") from None
        return
    except OSError as error:
        raise UsageError(f"cannot look at {path}: {error.strerror}", hint="-O names another file") from None
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is no file", hint="-O names one")
    if not force and found.st_size and not _is_report(path):
        hint = "-O names another file; --force writes over this one"
        raise UsageError(f"{path} is there, and is no report of dtctl", hint=hint)


def write_report(path: Path, text: str, *, force: bool) -> int:
    """How many bytes it has. It is replaced as a whole, with mode 0600."""
    check_place(path, force=force)
    content = text.encode("utf-8", "replace")
    try:
        replace_file(path.resolve(), content)
    except OSError as error:
        raise DtctlError(f"cannot write {path}: {error.strerror}", hint="-O names another file") from error
    return len(content)


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False
