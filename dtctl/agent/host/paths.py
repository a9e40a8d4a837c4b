"""The paths of all files below the root; reads and replaces state files."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from contextlib import suppress

from ..records import kinds
from ..records.kinds import InvalidValue, checked
from . import files
from .errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Mapping, Optional, Tuple, Type, TypeVar

    R = TypeVar("R")

MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of a state file; with a thousand hosts ours have a few megabytes."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_ATTEMPT = re.compile(r"attempt-([0-9]{1,9})\Z")

_NO_FILE = (errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EINVAL)
"""Errors for a path where another kind of file is in the way."""


def is_component(name: object) -> bool:
    """Whether a name is exactly one component of a path."""
    return isinstance(name, str) and len(name) <= 200 and _NAME.match(name) is not None


def component(name: object, what: str) -> str:
    """`name` if it is exactly one component of a path; else refuses it."""
    if not is_component(name):
        raise Refused("bad_request", "%s is not the name of a %s" % (ascii(name)[:300], what))
    return str(name)


def make_directory(path: str) -> None:
    """Makes a private directory and its parents; one that exists is left as it is."""
    if os.path.isdir(path):
        return
    make_directory(os.path.dirname(path))  # not os.makedirs, whose mode applies only to the last one
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def cluster_directory(root: str, cluster: str, host: str) -> str:
    return os.path.join(root, "clusters", component(cluster, "cluster"), component(host, "host"))


def run_directory(root: str, run: str, host: str) -> str:
    return os.path.join(root, "runs", component(run, "run"), component(host, "host"))


def bundle_directory(root: str, bundle: str) -> str:
    return os.path.join(root, "bundles", component(bundle, "bundle"))


def working_directory(root: str, cluster: str) -> str:
    return os.path.join(root, "work", component(cluster, "cluster"), "tree")


def task_directory(run_dir: str, task: str) -> str:
    return os.path.join(run_dir, "tasks", component(task.replace(":", "-"), "task"))


def attempt_directory(run_dir: str, task: str, attempt: int) -> str:
    return os.path.join(task_directory(run_dir, task), "attempt-%d" % attempt)


def attempts(task_directory: str) -> List[int]:
    """The numbers of the attempts that have a directory, in order."""
    return sorted(int(found[1]) for found in map(_ATTEMPT.match, entries(task_directory)) if found)


def last_attempt(run_dir: str, task: str) -> int:
    """The number of the newest attempt that has a directory; 0 when there is none."""
    return max(attempts(task_directory(run_dir, task)), default=0)


def entries(directory: str) -> List[str]:
    """Sorted names in a directory that may not exist."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def modified(path: str) -> float:
    """When the file or the directory's list was changed; now, for one that is being removed."""
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return time.time()


def is_still(path: str, found: os.stat_result) -> bool:
    """Whether the path is that of the same file as before."""
    try:
        return os.path.samestat(os.stat(path), found)
    except FileNotFoundError:
        return False


def modified_ns(path: str) -> int:
    """The time of the last change in ns; 0 if the file is missing."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def used_bytes(path: str) -> int:
    """The disk space that a file, or everything below a directory, takes."""
    total = own_bytes(path)
    for directory, below, others in os.walk(path):
        total += sum(own_bytes(os.path.join(directory, name)) for name in (*below, *others))
    return total


def own_bytes(path: str) -> int:
    """The disk space that removing only this file, link or directory frees: 0 if it is missing, or has other names."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return 0 if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 else found.st_blocks * 512


def read_text(path: str, most: int = MOST_BYTES) -> Optional[str]:
    """The file's text, stripped; None if there is no such file. Raises files.Unfit."""
    try:
        return files.read(path, most).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None


class Damaged(ValueError):
    """A file of dtctl's own is damaged; the text names it and its damage."""


class OtherVersion(Damaged):
    """The file is of a version of dtctl whose records differ; the text names both."""


class RunRemoved(FileNotFoundError):
    """There is no such run, or it was just removed."""


def version(path: str) -> Optional[Tuple[int, int, int]]:
    """A value that changes with each write; None without a visible file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_record(path: str, kind: Type[R], most: int = MOST_BYTES) -> Optional[R]:
    """The record in a file; None if there is no such file. Raises Damaged, and OSError for an unreadable one."""
    try:
        return checked(kind, kinds.parse_json(files.read(path, most)))
    except FileNotFoundError:
        return None
    except InvalidValue as error:
        if error.field == "version" and isinstance(error.found, int):
            problem = "%s is of version %d, and this dtctl reads %s" % (path, error.found, error.expected)
            raise OtherVersion(problem) from None
        raise Damaged("%s is damaged: %s" % (path, error)) from None
    except (ValueError, files.Unfit) as error:
        raise Damaged("%s is damaged: %s" % (path, error)) from None
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise Damaged("%s is damaged: %s" % (path, error.strerror)) from None


def put_aside(path: str) -> str:
    """Moves a damaged file aside, for inspection; returns its new path."""
    aside = aside_of(path)
    os.replace(path, aside)
    return aside


def aside_of(path: str) -> str:
    return "%s.damaged-%s" % (path, time.strftime("%Y%m%d-%H%M%S", time.gmtime()))


def tail(path: str, size: int = 4096) -> str:
    """The end of a text file, from the start of a line; empty if there is no such file."""
    try:
        with files.opened(path) as opened:
            start = max(0, os.fstat(opened).st_size - size)
            data = files.read_at(opened, start, size)
    except OSError:
        return ""
    if start and b"\n" in data:
        data = data[data.index(b"\n") + 1 :]
    return data.decode("utf-8", "replace")


def write_text(path: str, text: str) -> None:
    """Replaces the file atomically: a reader sees the old text or the new, and a full disk leaves the old one."""
    _write(path, text, os.replace)


def write_json(path: str, value: Mapping[str, object]) -> None:
    """Writes a JSON file as `write_text` does."""
    _write(path, _readable(value), os.replace)


def has_room(path: str) -> bool:
    """Whether the disk has room to write this file again, in its size as it is."""
    probe = "%s.room-%s" % (path, os.urandom(4).hex())
    try:
        size = max(_LEAST_ROOM_BYTES, os.stat(path).st_size)
    except OSError:
        size = _LEAST_ROOM_BYTES
    try:
        descriptor = files.private(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError as error:
        return error.errno not in (errno.ENOSPC, errno.EDQUOT)
    return True


_LEAST_ROOM_BYTES = 4096


def sync(path: str) -> None:
    """Waits until the file, and its name, are on the disk."""
    for name in (path, os.path.dirname(path)):
        descriptor = os.open(name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def claim_json(path: str, value: Mapping[str, object]) -> bool:
    """Writes the file unless there is one: of several processes that try, exactly one gets True."""
    try:
        _write(path, _readable(value), os.link)
    except FileExistsError:
        return False
    return True


def _readable(value: Mapping[str, object]) -> str:
    """A line for each field: `cat` shows what is there, and what is in them is written by json's C code."""
    return "{\n%s\n}\n" % ",\n".join(" %s: %s" % (json.dumps(name), json.dumps(value[name])) for name in value)


def _write(path: str, text: str, place: Any) -> None:
    temporary = "%s.%s.new" % (path, os.urandom(6).hex())
    try:
        descriptor = files.descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        place(temporary, path)
    finally:
        with suppress(OSError):  # renamed, or never made
            os.unlink(temporary)


def append_line(path: str, text: str) -> None:
    """Adds one line to a 0600 file."""
    with files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as descriptor:
        os.write(descriptor, text.encode("utf-8", "surrogateescape") + b"\n")
