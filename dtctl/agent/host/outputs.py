"""The cluster that has last written to an output directory: a mark for each directory, in the agent's own home.

Not in the directory itself, where trainers search for checkpoints, and some start only in an empty one; nor next to it,
where the user may have no write permission. A directory is identified by its path and its inode: a recreated one counts
as never written to. Hosts that share a directory but no home have a mark each. A storage URL also has a mark; it cannot
be opened here, so it counts as not empty.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ..records.checkpoints import OutputMark
from ..records.values import is_storage_url, normal_url, paths_of
from . import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Container, Iterable, List, Optional, Tuple

MOST_MARKS = 1000
"""The most marks; the oldest ones are removed."""
_MARK_BYTES = 65536


def found(root: str, directories: Iterable[str], live: Callable[[], Container[str]]) -> List[OutputMark]:
    """The marks of directories that are not empty, or to which a `live` run will soon write."""
    marks = [(directory, mark) for directory in directories for mark in [_mark(root, directory)] if mark is not None]
    empty = [mark for directory, mark in marks if not _holds_something(directory)]
    runs = live() if empty else ()
    return [mark for _, mark in marks if mark not in empty or mark["run"] in runs]


def write(
    root: str, directories: Iterable[str], cluster: str, run: str, controller: str, file: str, now: float
) -> None:
    """Marks them all as written by this run. Where that cannot be, they have no mark."""
    for directory in directories:
        with suppress(OSError):
            place, inode, path = _place(root, directory)
            mark: OutputMark = {
                "path": path,
                "inode": inode,
                "cluster": cluster,
                "run": run,
                "controller": controller,
                "file": file,
                "time": now,
            }
            paths.make_directory(os.path.dirname(place))
            paths.write_json(place, mark)
    _forget_old(os.path.join(root, "outputs"))


def of_cluster(root: str, cluster: str, controller: str = "", file: str = "") -> List[str]:
    """Directories that runs of a cluster were started to write to, or runs of this file there; the newest first.

    By their marks, which a mark's own directory may have outlived.
    """
    marks = []
    for name in paths.entries(os.path.join(root, "outputs")):
        try:
            mark = paths.read_record(os.path.join(root, "outputs", name), OutputMark, _MARK_BYTES)
        except (OSError, paths.Damaged):
            continue
        same_file = bool(file) and mark is not None and (mark["controller"], mark["file"]) == (controller, file)
        if mark is not None and (mark["cluster"] == cluster or same_file):
            marks.append(mark)
    return paths_of(dict.fromkeys(mark["path"] for mark in sorted(marks, key=lambda one: one["time"], reverse=True)))


def _mark(root: str, directory: str) -> Optional[OutputMark]:
    """The mark of a directory; None if there is none, or it cannot be read."""
    try:
        place, inode, path = _place(root, directory)
        mark = paths.read_record(place, OutputMark, _MARK_BYTES)
    except (OSError, paths.Damaged):
        return None
    return mark if mark is not None and (mark["path"], mark["inode"]) == (path, inode) else None


def _place(root: str, directory: str) -> Tuple[str, str, str]:
    """The mark's file, and the inode and path that it is for."""
    if is_storage_url(directory):
        path, inode = normal_url(directory), "0"
    else:
        path = os.path.realpath(directory)
        inode = str(os.stat(path).st_ino)
    import hashlib

    name = hashlib.sha256(("%s %s" % (path, inode)).encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(root, "outputs", name[:32] + ".json"), inode, path


def _holds_something(directory: str) -> bool:
    if is_storage_url(directory):
        return True
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def _forget_old(directory: str) -> None:
    marks = [os.path.join(directory, name) for name in paths.entries(directory)]
    for mark in sorted(marks, key=paths.modified)[:-MOST_MARKS]:
        with suppress(OSError):
            os.unlink(mark)


def lead_mark(directory: str, run: str) -> str:
    """The file by which the lead's agent identifies its directory for other hosts, in a run with spares."""
    return os.path.join(directory, ".dtctl-%s" % run)


def unmarked(directories: Iterable[str], run: str) -> List[str]:
    """The directories that are not the lead's."""
    return [directory for directory in directories if not os.path.exists(lead_mark(directory, run))]
