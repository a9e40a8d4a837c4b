"""Whether the run can write where it wants to, who sees that, and what lies there."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from functools import partial

from ..checkpoints import reading
from ..host import files, patience
from ..run import environment
from ..vitals import disks
from . import data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from ..protocol.conversation import Conversation
    from ..records.checks import CheckpointSize, Looked, LookFor, StorageFacts, StorageQuestion, Written

_PREFIX = ".dtctl-check-"
_OLD_S = 3600.0
_ANSWER_S = 10.0
_SEEN_S = 2.0
"""A network disk may show what others have written a moment later."""
_SILENT = "its file system does not answer"


def look(talk: Conversation, question: StorageQuestion) -> StorageFacts:
    words = environment.Marks(None).text
    token, host = question["token"], question["host"]
    return {
        "written": [_write(talk, path, words(path), token, host) for path in question["write"]],
        "looked": [_look(words(one["path"]), one, token) for one in question["look"]],
        "checkpoints": _sizes(question["checkpoints"], [words(path) for path in question["checkpoints"]]),
        "data": [data.told(path, words(path)) for path in question["data"]],
    }


def _name(token: str, host: str) -> str:
    return "%s%s-%s" % (_PREFIX, token, host)


def _write(talk: Conversation, asked: str, path: str, token: str, host: str) -> Written:
    told: Written = {"path": asked, "at": "", "up": 0, "free_bytes": 0, "full": False, "problem": ""}
    try:
        patience.within(_ANSWER_S, path, partial(_try_to_write, talk, told, path, _name(token, host)))
    except patience.Silent:
        return dict(told, problem=_SILENT)  # type: ignore[return-value]
    except OSError as error:
        told["problem"] = str(error.strerror or error)[:4096]
        told["full"] = error.errno == errno.ENOSPC
    return told


def _try_to_write(talk: Conversation, told: Written, path: str, name: str) -> None:
    at = disks.nearest(path)
    told["at"], told["up"] = at[:8192], _depth(path) - _depth(at)
    disk = os.statvfs(at)
    told["free_bytes"] = disk.f_bavail * disk.f_frsize
    file = os.path.join(at, name)
    with suppress(FileExistsError):  # several names of one directory
        descriptor = files.descriptor(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        talk.leaving.append(partial(os.unlink, file))
        try:
            os.write(descriptor, b"of a `dtctl check`, which removes it at its end\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    _clear(at)


def _clear(at: str) -> None:
    """Removes what checks that were killed have left."""
    with suppress(OSError), os.scandir(at) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):  # another user's, or gone
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD_S:
                        os.unlink(entry.path)


def _depth(path: str) -> int:
    return len([part for part in path.split("/") if part])


def _look(path: str, asked: LookFor, token: str) -> Looked:
    for _ in range(asked["up"]):
        path = os.path.dirname(path.rstrip("/"))
    names = {host: os.path.join(path, _name(token, host)) for host in asked["hosts"]}
    seen: List[str] = []
    with suppress(patience.Silent, OSError):
        seen = patience.within(_ANSWER_S, path, lambda: _seen(path, names))
    return {"path": asked["path"], "seen": seen}


def _seen(path: str, names: Dict[str, str]) -> List[str]:
    """Asked for by name, as a list of the directory may be an old one."""
    deadline = time.monotonic() + _SEEN_S
    while True:
        seen = [host for host, file in names.items() if os.path.lexists(file)]
        if len(seen) == len(names) or time.monotonic() > deadline or not os.path.isdir(path):
            return seen
        time.sleep(0.2)


def _sizes(asked: List[str], paths: List[str]) -> List[CheckpointSize]:
    """Of the newest complete checkpoint in each directory that has one."""
    found: List[CheckpointSize] = []
    for name, path in zip(asked, paths):
        for report in reading.report([path]):
            newest = report["newest_complete"]
            if newest is not None and newest["size_bytes"]:
                found.append({"path": name, "size_bytes": newest["size_bytes"]})
    return found
