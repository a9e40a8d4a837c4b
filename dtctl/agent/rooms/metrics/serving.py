"""metrics: the scalars that trainers have written, to a controller."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

from ...requests import runs
from .reading import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List

    from ...conversation import Conversation
    from .records import FolderPoints, MetricsRequest, MetricsResult, Points

LOOK_EVERY_S = 1.0


LOOK_LIMIT_S = 40.0
"""The longest time for the first reading of new files."""


def metrics(talk: Conversation, request: MetricsRequest) -> MetricsResult:
    """The points that are there; with `follow` a frame with them, others as they are added, and an end with the run."""
    run = runs.need(talk, request)
    patterns = request["tags"]

    def wanted(tag: str) -> bool:
        return patterns is None or any(tag == pattern or fnmatchcase(tag, pattern) for pattern in patterns)

    reader = Reader(runs.output_directories(run))
    with talk.at("metrics"):
        reader.look_until_all_is_read(LOOK_LIMIT_S)
        if request["follow"]:
            _send(talk, run, reader.series(wanted, request["points"]))
            _follow(talk, run, reader, wanted)
    return {
        "run": run.id,
        "time": time.time(),
        "dirs": reader.roots,
        "folders": [] if request["follow"] else reader.series(wanted, request["points"]),
        "problems": reader.problems(),
        "unread_bytes": reader.unread_bytes,
        "omitted": reader.omitted,
    }


def _follow(talk: Conversation, run: runs.Run, reader: Reader, wanted: Callable[[str], bool]) -> None:
    reader.forget_new()
    next_look = time.monotonic() + LOOK_EVERY_S

    def refresh() -> bool:
        nonlocal next_look
        if time.monotonic() < next_look:
            return False
        ended = run.has_ended()  # before the files are read: what has ended by then has written all that it will
        reader.refresh()
        _send(talk, run, reader.new_points(wanted))
        next_look = time.monotonic() + LOOK_EVERY_S
        return ended

    talk.wait(refresh, float("inf"))


def _send(talk: Conversation, run: runs.Run, folders: List[FolderPoints]) -> None:
    if folders:
        points: Points = {"run": run.id, "folders": folders}
        talk.send("points", points)
