"""events: the run's story from its coordinator's host, or that of one host alone from any other."""

from __future__ import annotations

import json
import os

from . import files, runs, whole_run
from .conversation import field
from .runfiles import RunRemoved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

    from .conversation import Conversation


def events(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Sends a frame for each line from number `from` on (the last -`from` lines when it is negative).

    With `follow` it goes on until the run has ended.
    """
    run = runs.need(talk, request)
    if request.get("whole"):
        whole_run.WholeRun(talk, run)  # refuses where this is not the whole story
    follow = bool(request.get("follow"))
    begin = field(request, "from", int, type(None)) or 0
    lines = Lines(run.files.path("history.jsonl" if whole_run.coordinates(run) else "events.jsonl"))
    number = 0

    def tell(new: List[bytes]) -> None:
        nonlocal number
        for line in new:
            if number >= begin and (event := _event(line)) is not None:
                own = {"n": number, "kind": "task", "host": run.spec["host"], "by": ""}
                talk.wire.send({**own, **event, "type": "event"})
            number += 1

    def look() -> bool:
        ended = _ended(run)  # before the lines are read: what has ended by then has written all that it will
        tell(lines.new())
        return ended

    first = lines.new()
    begin = max(0, len(first) + begin) if begin < 0 else begin
    tell(first)
    if follow:
        talk.wait(look, float("inf"))
    return {"run": run.id, "next": number}


def _event(line: bytes) -> Optional[Dict[str, Any]]:
    """None for a line that a crash of the host has spoilt."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _ended(run: runs.Run) -> bool:
    try:
        run.keep_supervised()
        return not run.live()
    except RunRemoved:
        return True


_MOST_BYTES = 256 * 1024 * 1024


class Lines:
    """Whole lines of a file that grows, or is not there yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> List[bytes]:
        """Those that have been added since the last call; of endless ones the first."""
        try:
            opened = files.descriptor(self._path)
        except FileNotFoundError:
            return []
        try:
            data = files.read_at(opened, self._offset, min(_MOST_BYTES, os.fstat(opened).st_size - self._offset))
        finally:
            os.close(opened)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()
