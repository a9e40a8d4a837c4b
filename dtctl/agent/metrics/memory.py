"""What earlier conversations have read of a run's event files, so that the next one reads only what is new.

A file in the run's directory, removed with the run. Whatever is wrong with it, all is read anew.
"""

from __future__ import annotations

import os
from array import array
from base64 import b64decode, b64encode
from contextlib import suppress

from ..host import paths
from ..records.kinds import MOST
from ..records.metrics import VERSION, Memory
from .folder import Folder
from .series import MOST_POINTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List

    from ..records.metrics import FolderKept, SeriesKept
    from .folder import Room
    from .series import Series

NAME = "scalars.json"
MOST_BYTES = 64 << 20


class _Unfit(Exception):
    pass


def remembered(directory: str, roots: Iterable[str], room: Room) -> Dict[str, Folder]:
    """Folders by their paths, of those below the roots."""
    known = set(roots)
    path = os.path.join(directory, NAME)
    found: Dict[str, Folder] = {}
    try:
        memory = paths.read_record(path, Memory, MOST_BYTES)
        for kept in memory["folders"] if memory is not None else ():
            if kept["root"] in known and len(kept["series"]) <= room.series:
                found[kept["path"]] = _folder(kept, room)
    except (paths.Damaged, _Unfit, OSError, ValueError):
        return {}
    return found


def remember(directory: str, folders: List[Folder]) -> None:
    """A full disk, or one that cannot be written, is no reason to tell nothing."""
    memory: Memory = {"version": VERSION, "folders": [_kept(folder) for folder in folders if _is_text(folder.path)]}
    with suppress(OSError):
        paths.write_json(os.path.join(directory, NAME), memory)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kept(folder: Folder) -> FolderKept:
    return {
        "root": folder.root,
        "path": folder.path,
        "files": {
            name: {"inode": str(file.inode), "offset": file.offset}
            for name, file in folder.files.items()
            if _is_text(name) and file.inode is not None
        },
        "series": {tag: _kept_series(series) for tag, series in folder.series.items()},
    }


def _kept_series(series: Series) -> SeriesKept:
    return {
        "file": series.file,
        "every": series.every,
        "count": series.count,
        "steps": b64encode(series.steps.tobytes()).decode(),
        "times": b64encode(series.times.tobytes()).decode(),
        "values": b64encode(series.values.tobytes()).decode(),
        "ends_apart": series.last is not None,
        "last": b64encode(array("d", [*series.last[1:]] if series.last else []).tobytes()).decode(),
        "last_step": series.last[0] if series.last else 0,
    }


def _folder(kept: FolderKept, room: Room) -> Folder:
    from .series import Series

    folder = Folder(kept["root"], kept["path"], room)
    for name, file in kept["files"].items():
        folder.file(name).go_on(int(file["inode"]), file["offset"])
    for tag, told in kept["series"].items():
        series = Series()
        series.file, series.every, series.count = told["file"], told["every"], told["count"]
        series.steps = _column("q", told["steps"])
        series.times = _column("d", told["times"])
        series.values = _column("d", told["values"])
        last = _column("d", told["last"])
        if not len(series.steps) == len(series.times) == len(series.values) <= 2 * MOST_POINTS:
            raise _Unfit
        if any(not 0 <= step <= MOST for step in series.steps) or len(last) != (2 if told["ends_apart"] else 0):
            raise _Unfit
        series.last = (told["last_step"], last[0], last[1]) if told["ends_apart"] else None
        folder.series[tag] = series
    room.series -= len(kept["series"])
    return folder


def _column(kind: str, text: str) -> Any:
    column: array[Any] = array(kind)
    data = b64decode(text.encode(), validate=True)
    if len(data) % column.itemsize:
        raise _Unfit
    column.frombytes(data)
    return column
