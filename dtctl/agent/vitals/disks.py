"""What is left where a run writes."""

from __future__ import annotations

import os
from functools import partial

from ..host import patience

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

    from ..records.vitals import Disk

ANSWER_S = 3.0
"""For one place; a file system may hang."""


def of(places: Sequence[str]) -> Tuple[List[Disk], List[str]]:
    """One of each file system, and the places that do not answer."""
    found: Dict[int, Disk] = {}
    silent: List[str] = []
    for place in places:
        try:
            device, disk = patience.within(ANSWER_S, place, partial(_disk, place))
        except patience.Silent:
            silent.append(place[:8192])
            continue
        except OSError:
            continue
        found.setdefault(
            device,
            {
                "path": place[:8192],
                "free_bytes": disk.f_bavail * disk.f_frsize,
                "size_bytes": disk.f_blocks * disk.f_frsize,
                "free_files": disk.f_favail if disk.f_files else None,
            },
        )
    return list(found.values())[:100], silent[:100]


def _disk(place: str) -> Tuple[int, os.statvfs_result]:
    """Of a place that is to be made that of the directory above it."""
    there = nearest(place)
    return os.stat(there).st_dev, os.statvfs(there)


def nearest(place: str) -> str:
    """The place, or what of its path is there."""
    while not os.path.exists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    return place
