"""Series and the folders that they are in, as records."""

from __future__ import annotations

import math
import os

from ..records.kinds import MOST
from ..records.metrics import LONGEST_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..records.metrics import FolderTold, SeriesTold
    from .folder import Folder
    from .series import Point, Series


def folder_told(folder: Folder, series: List[SeriesTold]) -> FolderTold:
    return {
        "dir": text(folder.root)[-LONGEST_PATH:],
        "name": text(folder.name)[-LONGEST_PATH:],
        "identity": identity_of(folder.inode, folder.first_file),
        "series": series,
    }


def identity_of(inode: int, first_file: str) -> str:
    """The same on all hosts that share the directory."""
    return "%x-%s" % (inode, text(first_file)[:255])


def series_told(tag: str, series: Series, points: List[Point]) -> SeriesTold:
    every = series.points()
    finite = [value for _, _, value in every if math.isfinite(value)]
    low: Optional[float] = min(finite) if finite else None
    high: Optional[float] = max(finite) if finite else None
    return {
        "tag": tag,
        "count": min(series.count, MOST),
        "least": None if low is None else repr(low),
        "most": None if high is None else repr(high),
        "steps": [step for step, _, _ in points],
        "times": [wall for _, wall, _ in points],
        "values": [repr(value) for _, _, value in points],
    }


def path_told(folder: Folder, name: str) -> str:
    return text(os.path.join(folder.path, name))[-LONGEST_PATH:]


def text(path: str) -> str:
    """A path that any reader of JSON takes."""
    return path.encode("utf-8", "replace").decode("utf-8")
