"""Whether the run can write to its directories, which hosts see that, and their contents: checkpoints and data."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from contextlib import suppress
from functools import partial

from ...checkpoints import reading
from ...host import files, machine
from ...host.budget import Silent, within
from ...records.kinds import made
from ...run import environment
from ...vitals import machine_load
from .records import CheckpointSize, Data, Looked, LookFor, StorageFacts, StorageQuestion, Written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Tuple

    from ...conversation import Conversation

    File = Tuple[str, int]
    """A file's path below the directory, and its size."""


_PREFIX = ".dtctl-check-"
_OLD_S = 3600.0
_ANSWER_S = 10.0
_SEEN_S = 2.0
"""A network disk may show what others have written a moment later."""
_AT_ONCE = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay")
"""File systems of one machine, which show everything at once."""
_OCTAL = re.compile(r"\\([0-7]{3})")
_SILENT = "its file system does not answer"


def storage_facts(talk: Conversation, question: StorageQuestion) -> StorageFacts:
    words = environment.Marks(None).text
    token, host = question["token"], question["host"]
    return {
        "written": [_write(talk, path, words(path), token, host) for path in question["write"]],
        "looked": [_inspect(words(one["path"]), one, token) for one in question["look"]],
        "checkpoints": _sizes(question["checkpoints"], [words(path) for path in question["checkpoints"]]),
        "data": [_data(path, words(path)) for path in question["data"]],
    }


def _name(token: str, host: str) -> str:
    return "%s%s-%s" % (_PREFIX, token, host)


def _write(talk: Conversation, asked: str, path: str, token: str, host: str) -> Written:
    answer = made(Written, path=asked)
    try:
        within(_ANSWER_S, path, partial(_try_to_write, talk, answer, path, _name(token, host)))
    except Silent:
        return dict(answer, problem=_SILENT)  # type: ignore[return-value]
    except OSError as error:
        answer["problem"] = str(error.strerror or error)[:4096]
        answer["full"] = error.errno == errno.ENOSPC
    return answer


def _try_to_write(talk: Conversation, answer: Written, path: str, name: str) -> None:
    at = machine_load.nearest_directory(path)
    answer["at"], answer["up"] = at[:8192], _depth(path) - _depth(at)
    answer["filesystem"] = filesystem_of(os.path.realpath(at), machine.text("/proc/self/mountinfo"))
    disk = os.statvfs(at)
    answer["free_bytes"] = disk.f_bavail * disk.f_frsize
    file = os.path.join(at, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with suppress(FileExistsError), files.opened(file, flags) as descriptor:  # several names of one directory
        talk.leaving.append(partial(os.unlink, file))
        os.write(descriptor, b"of a `dtctl check`, which removes it at its end\n")
        os.fsync(descriptor)
    _clear(at)


def filesystem_of(path: str, mounts: str) -> str:
    """The type of the file system that a path is on: of the mount point that is nearest above it, the last one there
    (proc_pid_mountinfo(5))."""
    nearest, found = "", ""
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split()
        if len(fields) > 4 and source:
            point = _OCTAL.sub(lambda one: chr(int(one.group(1), 8)), fields[4])
            if len(point) >= len(nearest) and (path + "/").startswith(point.rstrip("/") + "/"):
                nearest, found = point, source.split()[0]
    return found[:100]


def _clear(at: str) -> None:
    """Removes what checks that were killed have left."""
    with suppress(OSError), os.scandir(at) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):  # another user's, or removed
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD_S:
                        os.unlink(entry.path)


def _depth(path: str) -> int:
    return len([part for part in path.split("/") if part])


def _inspect(path: str, asked: LookFor, token: str) -> Looked:
    for _ in range(asked["up"]):
        path = os.path.dirname(path.rstrip("/"))
    names = {host: os.path.join(path, _name(token, host)) for host in asked["hosts"]}
    seen: List[str] = []
    with suppress(Silent, OSError):
        seen = within(_ANSWER_S, path, lambda: _seen(path, names))
    return {"path": asked["path"], "seen": seen}


def _seen(path: str, names: Dict[str, str]) -> List[str]:
    """The hosts whose files are visible here, checked by name, as a directory's list may be outdated."""
    at_once = filesystem_of(os.path.realpath(path), machine.text("/proc/self/mountinfo")) in _AT_ONCE
    deadline = time.monotonic() + (0.0 if at_once else _SEEN_S)
    while True:
        seen = [host for host, file in names.items() if os.path.lexists(file)]
        if len(seen) == len(names) or time.monotonic() > deadline or not os.path.isdir(path):
            return seen
        time.sleep(0.2)


def _sizes(asked: List[str], paths: List[str]) -> List[CheckpointSize]:
    """The size of the newest complete checkpoint in each directory that has one."""
    found: List[CheckpointSize] = []
    for name, path in zip(asked, paths):
        for report in reading.report([path]):
            newest = report["newest_complete"]
            if newest is not None and newest["size_bytes"]:
                found.append({"path": name, "size_bytes": newest["size_bytes"]})
    return found


_DATA_S = 15.0
_COUNT_S = 10.0
"""The time limit for counting a directory of data; a larger tree is reported as far as it was counted."""
_SAMPLED = 16
_PIECE_BYTES = 64 * 1024


def _data(asked: str, path: str) -> Data:
    data = made(Data, path=asked, there=True)
    try:
        within(_DATA_S, path, partial(_count_data, data, path))
    except Silent:
        data = dict(data, problem=_SILENT, whole=False)  # type: ignore[assignment]
    except FileNotFoundError:
        data["there"] = False
    except OSError as error:
        data["problem"] = str(error.strerror or error)[:4096]
    return data


def _count_data(found: Data, path: str) -> None:
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
                with suppress(OSError):  # removed, or a dangling link
                    status = os.stat(path)
                    if stat.S_ISREG(status.st_mode):
                        yield os.path.relpath(path, root), status.st_size


def _digest(root: str, counted: List[File]) -> str:
    """A digest of all names and sizes, and of the first and last piece of some files, the same ones on every host."""
    whole = hashlib.sha256()
    for name, size in counted:
        whole.update(b"%s\0%d\0" % (os.fsencode(name), size))
    for name, size in counted[:: max(1, len(counted) // _SAMPLED)][:_SAMPLED]:
        with suppress(OSError), files.opened(os.path.realpath(os.path.join(root, name))) as opened:
            whole.update(files.read_at(opened, 0, _PIECE_BYTES))
            whole.update(files.read_at(opened, max(0, size - _PIECE_BYTES), _PIECE_BYTES))
    return whole.hexdigest()[:16]
