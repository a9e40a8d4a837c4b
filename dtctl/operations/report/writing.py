"""A report's file: for its owner alone, whole or not at all, and never in place of something else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dtctl.errors import DtctlError, UsageError
from dtctl.folder import Folder, open_regular, replace_file

MARK = "<!-- dtctl report"
"""How a report begins, or its second line."""

_HEAD_BYTES = 200


def check_place(path: Path, project: Path | None = None, *, force: bool) -> None:
    """Raises UsageError for a place that is taken, and where no file can be."""
    try:
        with Folder(path.parent, project) as folder:
            found = folder.find(path.name)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path.parent} is no directory", hint="-O names a file in one that is there") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="-O names another file") from None
    if found is None:
        return
    if stat.S_ISLNK(found.st_mode):
        raise UsageError(f"{path} is a link, which is not followed", hint="-O names a file")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is no file", hint="-O names one")
    if not force and found.st_size and not _is_report(path):
        hint = "-O names another file; --force writes over this one"
        raise UsageError(f"{path} is there, and is no report of dtctl", hint=hint)


def write_report(path: Path, text: str, project: Path | None = None, *, force: bool) -> int:
    """How many bytes it has. It is replaced as a whole, with mode 0600."""
    check_place(path, project, force=force)
    content = text.encode("utf-8", "replace")
    try:
        replace_file(path, content, project=project)
    except OSError as error:
        raise DtctlError(f"cannot write {path}: {error.strerror}", hint="-O names another file") from error
    return len(content)


def _is_report(path: Path) -> bool:
    try:
        with os.fdopen(open_regular(path, follow=False), "rb") as file:
            return MARK.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False
