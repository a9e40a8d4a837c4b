"""What lies in a directory of data: enough to tell whether two hosts have the same."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import suppress
from functools import partial

from ..host import files, patience

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

    from ..records.checks import Data

    File = Tuple[str, int]
    """Its path below the directory, and its size."""

LIMIT_S = 15.0
_COUNT_S = 10.0
"""Of these; a larger tree is told as far as it was counted."""
_SAMPLED = 16
_PIECE_BYTES = 64 * 1024


def told(asked: str, path: str) -> Data:
    found: Data = {
        "path": asked,
        "there": True,
        "files": 0,
        "size_bytes": 0,
        "whole": True,
        "digest": "",
        "problem": "",
    }
    try:
        patience.within(LIMIT_S, path, partial(_count, found, path))
    except patience.Silent:
        found = dict(found, problem="its file system does not answer", whole=False)  # type: ignore[assignment]
    except FileNotFoundError:
        found["there"] = False
    except OSError as error:
        found["problem"] = str(error.strerror or error)[:4096]
    return found


def _count(found: Data, path: str) -> None:
    os.listdir(path)  # raises what hinders
    deadline = time.monotonic() + _COUNT_S
    counted: List[File] = []
    for file in _files(path):
        counted.append(file)
        if time.monotonic() > deadline:
            found["whole"] = False
            break
    counted.sort()
    found["files"], found["size_bytes"] = len(counted), sum(size for _, size in counted)
    if found["whole"]:
        found["digest"] = _digest(path, counted)


def _files(root: str) -> Iterator[File]:
    """Regular files, also those that links lead to; hidden ones do not count."""
    for directory, names, here in os.walk(root):
        names[:] = [name for name in names if not name.startswith(".")]
        for name in here:
            if not name.startswith("."):
                path = os.path.join(directory, name)
                with suppress(OSError):  # gone, or a link to nowhere
                    status = os.stat(path)
                    if stat.S_ISREG(status.st_mode):
                        yield os.path.relpath(path, root), status.st_size


def _digest(root: str, counted: List[File]) -> str:
    """Of all names and sizes, and of the first and the last piece of some files, the same ones on every host."""
    whole = hashlib.sha256()
    for name, size in counted:
        whole.update(b"%s\0%d\0" % (os.fsencode(name), size))
    for name, size in counted[:: max(1, len(counted) // _SAMPLED)][:_SAMPLED]:
        with suppress(OSError):
            opened = files.descriptor(os.path.realpath(os.path.join(root, name)))
            try:
                whole.update(files.read_at(opened, 0, _PIECE_BYTES))
                whole.update(files.read_at(opened, max(0, size - _PIECE_BYTES), _PIECE_BYTES))
            finally:
                os.close(opened)
    return whole.hexdigest()[:16]
